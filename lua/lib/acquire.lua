-- Acquiring with everything in the way that can be: dead holders, a queue, a grant that was made
-- meanwhile.
local demand, bad = read_demand(7, read_flags)

-- @include place

-- What this acquisition has, if it holds: state, deadline, token, a reader's index.
local function held(mode)
  if mode == 'r' then
    local alive, state, deadline, token, index = reading(demand.id)
    if alive then
      return state, deadline, token, index
    end
  else
    local id, state, deadline, token = writing()
    if id == demand.id then
      return state, deadline, token
    end
  end
end

-- Claims the grant that this acquisition has, if any. The record is written even if
-- nothing in it changes: `WAIT` counts replicas only for what the call in front of it has written.
-- A call that comes again changes no mark, and takes no more tokens.
local function claim(mode)
  local state, deadline, token, index = held(mode)
  if not state then
    return false
  elseif state == 'g' then
    state, deadline = claimed, claimed_until(deadline, token, demand.lease)
    if mode == 'w' and token > number('revoked') then
      mint_block(block)
    end
  end
  if mode == 'w' then
    write(demand.id, state, deadline, token)
  else
    put_reader(demand.id, state, deadline, token, index)
  end
  return true
end

-- A record of this acquisition that has run out stands in its own way.
local function clear_dead_record()
  local alive, _, _, _, index = reading(demand.id)
  if alive == false then
    remove_reader(demand.id, index)
  end
end

local function is_free(mode)
  if writing() or upgrading() then
    return false
  end
  local next_reader, next_writer = first('r'), first('w')
  if mode == 'w' then
    return not next_reader and not next_writer and not blocked_by_readers(0)
  end
  return not next_reader and (not next_writer or (demand.fairness == 'r' and number('fair') == 0))
end

-- Whether nobody but cached holders is in the way.
local function only_cached(mode)
  local _, state = writing()
  if is_cached(state) then
    return not first('r') and not first('w')
  end
  return not state and mode == 'w' and not get('waiters') and number('readers') > 0 and number('readers') == number('cached')
end

local function take(mode)
  local token, deadline = mint(), now + demand.lease
  if mode == 'w' then
    write(demand.id, claimed, deadline, token)
    mint_block(block)
  else
    add_reader(demand.id, claimed, deadline, token)
  end
end

local function holder_ends()
  local _, _, deadline = writing()
  return deadline or number('read_min')
end

local function place(entry)
  local head = linked(get(HEAD_FIELD[entry.mode])) or malformed('queue')
  return reply('queued', more, entry.ticket, math.max(entry.ticket - head.ticket, 0), holder_ends())
end

-- A waiter asks cached holders in its way for the lock, and a try if nobody else is in its way.
local function call_back(mode)
  local entry = waiter(me)
  if entry or only_cached(mode) then
    local again = entry and get(HEAD_FIELD[mode]) == me
    if writing() then
      recall_writer(again)
    elseif mode == 'w' then
      recall_readers(again)
    end
  end
end

local function acquire(mode)
  local strange = bad or open({ 'writer', 'readers', 'waiters', 'cached' })
  if strange then
    return strange
  elseif demand.not_after > 0 and now > demand.not_after then
    return reply('stale', 0)
  end
  me, claimed, block = demand.id, demand.cached and 'k' or 'h', demand.tokens
  if claim(mode == 'w' and 'r' or 'w') then
    return demand.waits and not demand.soft and refuse('id holds in the other mode') or reply('refused', 0, holder_ends())
  end
  local entry = waiter(me)
  local known, refused, takes = entry or claim(mode), nil, false
  if entry and entry.mode ~= mode then
    return refuse('id waits in the other mode')
  elseif entry and demand.waits then
    refused = refresh(entry)
  elseif not known then
    clear_dead_record()
    takes = true
    if demand.ticket > 0 then
      refused = queue(mode)
    elseif is_free(mode) then
      take(mode)
    elseif demand.waits and (not demand.soft or only_cached(mode)) then
      refused = queue(mode)
    else
      takes = false
    end
  end
  if refused then
    return refused
  end
  settle(not takes, function()
    if not held(mode) then
      call_back(mode)
    end
  end)
  tell_holders(demand.tag, mode)
  local state, deadline, token = held(mode)
  entry = waiter(me)
  if state and demand.cached then
    return reply('granted', more, me, token, deadline, number('fence'), recalled(state))
  elseif state then
    return reply('granted', more, me, token, deadline)
  elseif entry then
    return place(entry)
  end
  return reply(only_cached(mode) and 'cached' or 'refused', more, holder_ends())
end
