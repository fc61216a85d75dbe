-- Acquiring with everything in the way that can be: dead holders, a queue, a grant that was made
-- meanwhile.
local demand, bad = read_demand(7)

-- The grant that this acquisition has, if any, claimed by this call. The record is written even if
-- nothing in it changes: `WAIT` counts replicas only for what the call in front of it has written.
local function claim(mode)
  local alive, state, deadline, token, index
  if mode == 'w' then
    local id
    id, state, deadline, token = writing()
    alive = id == demand.id
  else
    alive, state, deadline, token, index = reading(demand.id)
  end
  if not alive then
    return nil
  elseif state == 'g' then
    deadline = claimed_until(deadline, token, demand.lease)
  end
  if mode == 'w' then
    write(demand.id, 'h', deadline, token)
  else
    put('r:' .. demand.id, record('h', deadline, token, index))
    cover(deadline)
  end
  return { token = token, deadline = deadline }
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

local function take(mode)
  local token, deadline = mint(), now + demand.lease
  if mode == 'w' then
    write(demand.id, 'h', deadline, token)
  else
    add_reader(demand.id, 'h', deadline, token)
  end
end

local function refresh(entry)
  local bad_place = read_place(demand)
  if bad_place then
    return bad_place
  end
  entry.seen, entry.ttl, entry.lease, entry.window = now, demand.ttl, demand.lease, demand.window
  entry.node, entry.tag = demand.node, demand.tag
  save(entry)
end

local function queue(mode)
  local bad_place = read_place(demand)
  if bad_place then
    return bad_place
  elseif demand.ticket == 0 and number('waiters') >= demand.limit then
    settle(false)
    return reply('full', more, number('waiters'))
  end
  -- From MOST_EXACT on, one more is the same number: so nobody is given a ticket that it may not
  -- come back with.
  local last = number('ticket')
  local ticket = demand.ticket > 0 and math.min(demand.ticket, last + LEAP) or last + 1
  if ticket > last then
    put('ticket', ticket)
  end
  link({
    id = demand.id,
    mode = mode,
    ticket = ticket,
    seen = now,
    ttl = demand.ttl,
    lease = demand.lease,
    window = demand.window,
    fairness = demand.fairness,
    node = demand.node,
    tag = demand.tag,
    since = now,
  })
end

local function holder_ends()
  local _, _, deadline = writing()
  return deadline or number('read_min')
end

local function place(entry)
  local head = linked(get(HEAD[entry.mode])) or malformed('queue')
  return reply('queued', more, entry.ticket, math.max(entry.ticket - head.ticket, 0), holder_ends())
end

local function acquire(mode)
  local strange = bad or open({ 'writer', 'readers', 'waiters' })
  if strange then
    return strange
  elseif demand.not_after > 0 and now > demand.not_after then
    return reply('stale', 0)
  end
  me = demand.id
  if claim(mode == 'w' and 'r' or 'w') then
    return demand.waits and refuse('id holds in the other mode') or reply('refused', 0, holder_ends())
  end
  local entry = waiter(me)
  local known, refused = entry or claim(mode), nil
  if entry and entry.mode ~= mode then
    return refuse('id waits in the other mode')
  elseif entry and demand.waits then
    refused = refresh(entry)
  elseif not known then
    clear_dead_record()
    if demand.ticket > 0 then
      refused = queue(mode)
    elseif is_free(mode) then
      take(mode)
    elseif demand.waits then
      refused = queue(mode)
    end
  end
  if refused then
    return refused
  end
  settle(known)
  local granted = claim(mode)
  entry = waiter(me)
  if granted then
    return reply('granted', more, granted.token, granted.deadline)
  elseif entry then
    return place(entry)
  end
  return reply('refused', more, holder_ends())
end
