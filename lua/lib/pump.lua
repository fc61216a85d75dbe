-- @layer
-- Who is next. Whatever frees a lock ends here, and grants it to the waiters whose turn it is, in a
-- bounded number of steps; what is left over is said by `more`.
--
-- Phase-fair: waiting writers are first in, first out, and so are waiting readers. When a write
-- ends, the readers that wait by then go before the next writer (`phase` is the last of their
-- tickets); when the last reader is gone, the next writer goes. The one upgrader goes before all.
local GRANTS = 16 -- grants and dead waiters in one call
local LOOKS = 16 -- readers looked at when somebody is blocked by them; a few otherwise
local LOOKS_UNBLOCKED = 2

local me = false -- the acquisition that this call is made for, if it acquires the lock
local claimed = 'h' -- the state that its claim gives it
local block = 1 -- tokens that its write takes
local more = 0
local steps, looks = GRANTS, LOOKS
local grants = {}

local function mint()
  local token = math.max(number('fence') + 1, us)
  if token >= MOST_EXACT then
    malformed('fence') -- the next one would be the same
  end
  put('fence', token)
  cover(math.floor(token / 1000))
  return token
end

-- Raises the last token to the end of a block that begins now: a cached write owns its tokens, from
-- the one that it was granted by to the last one of the lock.
local function mint_block(count)
  if count > 1 then
    put('fence', math.max(number('fence'), us + count - 1))
    cover(math.floor(number('fence') / 1000))
  end
end

-- A write has ended: the readers that wait by now go before the next writer.
local function end_write()
  put('writer', false)
  if get('readers_head') then
    put('phase', number('ticket'))
  end
end

-- The writer that holds: id, state, deadline, token. A dead one is removed.
local function writing()
  local text = get('writer')
  if not text then
    return
  end
  local state, deadline, token, id = parse(text)
  if deadline > now then
    return id, state, deadline, token
  end
  if state == 'g' then
    lapse(id, deadline)
  end
  end_write()
end

local function write(id, state, deadline, token)
  put('writer', record(state, deadline, token, id))
  cover(deadline)
end

-- The deadline that a claim of this lease gives it: what is revoked is not made longer.
local function claimed_until(deadline, token, wanted)
  return token > number('revoked') and math.max(deadline, now + wanted) or deadline
end

-- The claim is the waiter's own affair: until it comes, a grant lasts for the waiter's window. The
-- caller has its full lease at once.
local function grant(entry)
  local token = mint()
  local asks = entry.id == me
  local state, deadline = asks and claimed or 'g', now + (asks and entry.lease or entry.window)
  if entry.mode == 'u' then
    local _, _, until_then, _, index = reading(entry.id)
    deadline = math.max(deadline, until_then)
    remove_reader(entry.id, index)
    drop('upgrader')
    forget(entry)
    tally(entry, -1)
  else
    unlink(entry)
  end
  if entry.mode == 'r' then
    add_reader(entry.id, state, deadline, token)
  else
    write(entry.id, state, deadline, token)
    if asks then
      mint_block(block)
    end
  end
  if not asks then
    grants[#grants + 1] = { entry = entry, deadline = deadline, token = token }
  end
end

-- The first living waiter of a list; dead ones before it are dropped.
local function first(mode)
  local entry = linked(get(HEAD[mode]))
  while entry and entry.id ~= me and not is_alive(entry) and steps > 0 do
    unlink(entry)
    steps = steps - 1
    entry = linked(get(HEAD[mode]))
  end
  return entry
end

-- The upgrader, if it lives and still reads, and its lease may be made longer.
local function upgrading()
  local id = get('upgrader')
  if id then
    local entry = waiter(id)
    local reads, _, _, token = reading(id)
    if entry and reads and token > number('revoked') and (id == me or is_alive(entry)) then
      return entry
    end
    put('upgrader', false)
    if entry then
      forget(entry)
      tally(entry, -1)
    end
  end
end

-- True if more than `others` readers are left after looking for dead ones.
local function blocked_by_readers(others)
  if number('readers') > others and looks > 0 then
    if sweep(looks) then
      more = 1
    end
    looks = 0
  end
  return number('readers') > others
end

local function reads_next(reader, waits_to_write)
  return not waits_to_write or reader.ticket <= number('phase') or (reader.fairness == 'r' and number('fair') == 0)
end

-- Grants one waiter its turn; false if nobody can go. The look at the readers may show that the
-- client of the next waiter is gone: then another waiter is next.
local function step()
  if writing() then
    return false
  end
  local upgrader = upgrading()
  if upgrader then
    if blocked_by_readers(1) then
      return upgrading() ~= upgrader
    end
    grant(upgrader)
    return true
  end
  local next_reader, next_writer = first('r'), first('w')
  if steps <= 0 then
    return false
  elseif next_reader and reads_next(next_reader, next_writer) then
    grant(next_reader)
    return true
  elseif not next_writer then
    -- The dead are in nobody's way, and go by and by; but readers that a forced release cut off
    -- are to be gone soon.
    local forced = get('forced')
    looks = math.min(looks, forced and LOOKS or LOOKS_UNBLOCKED)
    if sweep(looks) and forced then
      more = 1
    end
    looks = 0
    return false
  elseif blocked_by_readers(0) then
    return first('w') ~= next_writer
  end
  next_writer = first('w')
  if next_writer and steps > 0 then
    grant(next_writer)
  end
  return true
end

local function pump()
  while steps > 0 and step() do
    steps = steps - 1
  end
  if steps <= 0 and (get('readers_head') or get('writers_head') or get('upgrader')) and not get('writer') then
    more = 1
  end
end

-- Takes back a grant that nobody heard, at the server where its waiter subscribed: the waiter is
-- gone.
local function take_back(granted)
  if granted.entry.mode == 'w' then
    put('writer', false)
  else
    local _, _, _, _, index = reading(granted.entry.id)
    remove_reader(granted.entry.id, index)
  end
end

-- Tells each client of its grants in one message: "<now> <more>", then " <id> <token> <deadline>"
-- for each. Returns true if some of them are gone and were passed over.
local function tell()
  local channels, messages, heard_by = {}, {}, {}
  for _, granted in ipairs(grants) do
    local entry = granted.entry
    if entry.node ~= '-' then
      local channel = '{' .. entry.tag .. '}rwlease:' .. string.sub(entry.id, 1, CLIENT)
      if not messages[channel] then
        channels[#channels + 1], messages[channel], heard_by[channel] = channel, format('%.0f %d', now, more), {}
      end
      messages[channel] = messages[channel] .. format(' %s %.0f %.0f', entry.id, granted.token, granted.deadline)
      table.insert(heard_by[channel], granted)
    end
  end
  grants = {}
  local gone = false
  for _, channel in ipairs(channels) do
    if redis.pcall('SPUBLISH', channel, messages[channel]) == 0 then
      for _, granted in ipairs(heard_by[channel]) do
        if granted.entry.node == here and granted.entry.mode ~= 'u' then
          take_back(granted)
          gone = true
        end
      end
    end
  end
  return gone
end

-- The end of every script that may free something: grants, asks cached holders for the lock
-- (`call_back`, if it is given), writes, tells.
local function settle(frees, call_back)
  repeat
    pump()
    if call_back then
      call_back()
    end
    flush(frees)
    frees = true
  until not tell()
end
