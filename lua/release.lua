-- Ends whatever an acquisition has: a lease, or a place in the queue. Nobody else's.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
-- ARGV[3]  id                   ARGV[4]  what: all, or wait (only the wait: an upgrader reads on)
--
-- Reply: now, status, more
--   released   it held, and no longer does
--   left       it waited, and no longer does
--   expired    its lease had ended before
--   absent     the lock knows nothing of it
--   writing    token, deadline: the wait that was to end is over, the upgrade was granted (what =
--              wait)
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: with no queue TIME, HMGET, HDEL, and PEXPIREAT or HDEL and HSET (two HGET more for a reader
-- that is not the last); the last holder's, with writers waiting and nobody else, TIME, HMGET
-- twice, HGET once or twice, HDEL twice, HSET, SPUBLISH and at times PEXPIREAT; else a bounded
-- number of calls.

-- @include constants
-- @include clock

-- No reader is dead or forced out, and the clock is past the last token: the usual cases, without
-- the machinery below. Nobody waits, or a waiter gets what the last holder leaves.
local mine = 'r:' .. tostring(ARGV[3])
local lock = redis.pcall('HMGET', KEYS[1], 'version', 'writer', 'readers', 'waiters', mine, 'read_min', 'fence')
local simple = lock[1] == VERSION and #KEYS == 1 and #ARGV == 4 and ARGV[4] == 'all' and (tonumber(lock[7]) or us) < us
local handed
if simple and not lock[4] then
  local writer, reader, done = lock[2], lock[5], false
  if writer and string.sub(writer, 31) == ARGV[3] then
    if (tonumber(string.sub(writer, 2, 14)) or 0) > now then
      redis.call('HDEL', KEYS[1], 'writer', 'until')
      redis.call('PEXPIREAT', KEYS[1], now + GRACE)
      done = true
    end
  elseif reader and (tonumber(lock[6]) or 0) > now then
    local index, last = string.sub(reader, 31), (tonumber(lock[3]) or 0) - 1
    if last == 0 then
      redis.call('HDEL', KEYS[1], mine, 'i:0', 'readers', 'read_min', 'until')
      redis.call('PEXPIREAT', KEYS[1], now + GRACE)
      done = true
    elseif index == tostring(last) then
      redis.call('HDEL', KEYS[1], '-') -- so that a full memory does not refuse what follows
      redis.call('HSET', KEYS[1], 'readers', last) -- before the HDEL, for a user without the right to set
      redis.call('HDEL', KEYS[1], mine, 'i:' .. last)
      done = true
    else
      local moved = redis.call('HGET', KEYS[1], 'i:' .. last)
      local record = moved and tonumber(index) and redis.call('HGET', KEYS[1], 'r:' .. moved)
      if record then
        redis.call('HDEL', KEYS[1], '-')
        redis.call('HSET', KEYS[1], 'r:' .. moved, string.sub(record, 1, 30) .. index, 'i:' .. index, moved, 'readers', last)
        redis.call('HDEL', KEYS[1], mine, 'i:' .. last)
        done = true
      end
    end
  end
  if done then
    return { now, 'released', 0 }
  end
elseif simple then
-- @include handoff
  local writer, reader = lock[2], lock[5]
  if writer and not lock[3] and string.sub(writer, 31) == ARGV[3] and (tonumber(string.sub(writer, 2, 14)) or 0) > now then
    handed = hand_off()
  elseif reader and not writer and lock[3] == '1' and string.sub(reader, 31) == '0' and (tonumber(lock[6]) or 0) > now then
    handed = hand_off(mine, 'i:0', 'readers', 'read_min')
  end
  if handed == 'heard' then
    return { now, 'released', 0 }
  end
end

-- @include prelude

local only_wait = ARGV[4] == 'wait'
if #KEYS ~= 1 or #ARGV ~= 4 then
  return refuse('count')
elseif ARGV[4] ~= 'all' and not only_wait then
  return refuse('what')
elseif not is_id(ARGV[3]) then
  return refuse('id')
end
local strange = foreign(lock)
if strange then
  return strange
end

-- @include hash
-- @include waiters
-- @include readers
-- @include pump

local function end_reading(id)
  local alive, _, _, _, index = reading(id)
  if alive ~= nil then
    remove_reader(id, index)
    return alive and 'released' or 'expired'
  end
end

local function end_writing(id)
  local text = get('writer')
  if text then
    local _, deadline, _, writes = parse(text)
    if writes == id then
      end_write()
      return deadline > now and 'released' or 'expired'
    end
  end
end

local function end_waiting(id)
  local entry = waiter(id)
  if not entry then
    return
  elseif entry.mode == 'u' then
    put('upgrader', false)
    forget(entry)
    tally(entry, -1)
  else
    unlink(entry)
  end
  return 'left'
end

return answer(function()
  if handed == 'unheard' then
    put('writer', false)
    settle(true)
    return { now, 'released', more }
  end
  seed({ 'version', 'writer', 'readers', 'waiters', mine, 'read_min', 'fence' }, lock)
  if only_wait then
    local id, _, deadline, token = writing()
    if id == ARGV[3] then
      return { now, 'writing', 0, token, deadline }
    end
  end
  local left = end_waiting(ARGV[3])
  local ended = not only_wait and (end_writing(ARGV[3]) or end_reading(ARGV[3]))
  settle(true)
  return { now, ended or left or 'absent', more }
end)
