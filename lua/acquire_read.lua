-- Takes the lock for reading, or a place in the queue; called again, it is a waiter's poll.
-- Idempotent for one acquisition.
--
-- KEYS, ARGV, reply, errors: as in acquire_write.lua.
-- Cost: with no writer and no queue TIME, HMGET, HSET and at times PEXPIREAT; refused TIME, HMGET;
-- else a bounded number of calls, whatever the number of readers and waiters.

-- @include constants
-- @include clock

-- No writer, no queue, no dead reader to look for: the usual cases, without the machinery below.
local mine = 'r:' .. tostring(ARGV[3])
local lock = redis.pcall('HMGET', KEYS[1], 'version', 'fence', 'writer', 'readers', 'waiters', 'until', 'read_min', mine)
-- @include simple
if simple then
  local writer, readers, read_min = lock[3], tonumber(lock[4] or 0) or FEW, tonumber(lock[7] or NEVER) or 0
  if not writer and not lock[8] and read_min > now and readers ~= FEW then
    local deadline = now + lease
    local ends = deadline .. ''
    local record, place, least = 'h' .. ends .. stamp .. readers, 'i:' .. readers, read_min < deadline and lock[7] or ends
    local done, life
    if deadline + GRACE > (tonumber(lock[6]) or 0) then
      life = deadline + GRACE + SLACK .. ''
      done = redis.pcall(
        'HSET', KEYS[1], 'version', VERSION, 'fence', stamp, mine, record, place, caller, 'readers', readers + 1, 'read_min', least,
        'until', life
      )
    else
      done = redis.pcall('HSET', KEYS[1], 'fence', stamp, mine, record, place, caller, 'readers', readers + 1, 'read_min', least)
    end
    if type(done) ~= 'number' then
      return { err = string.match(done.err, ERROR) or done.err }
    elseif life then
      redis.call('PEXPIREAT', KEYS[1], life)
    end
    return { now, 'granted', 0, us, deadline }
  elseif writer and not waits and string.sub(writer, 31) ~= caller then
    local ends = tonumber(string.sub(writer, 2, 14)) or 0
    if ends > now then
      return { now, 'refused', 0, ends }
    end
  end
end

-- @include prelude
-- @include demand
-- @include hash
-- @include waiters
-- @include readers
-- @include pump
-- @include acquire

return answer(function()
  return acquire('r')
end)
