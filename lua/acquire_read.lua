-- Takes the lock for reading, or a place in the queue; called again it is the poll of the one who waits. Idempotent for one owner.
--
-- KEYS, ARGV, reply, errors: as in acquire_write.lua.
-- Cost: with no writer and no queue TIME, HMGET, HSET and at times PEXPIREAT; refused TIME, HMGET; else a bounded number of calls,
-- whatever the number of readers and waiters.

-- @include constants
-- @include clock

-- No writer, no queue, no dead reader to look for: the usual cases, without the machinery below.
local mine = 'r:' .. tostring(ARGV[3])
local lock = redis.pcall(
  'HMGET', KEYS[1], 'version', 'fence', 'until', 'writer', 'readers', 'read_min', 'readers_head', 'writers_head', 'upgrader', mine
)
-- @include simple
if simple then
  local writer, readers, read_min = lock[4], tonumber(lock[5] or 0) or FEW, tonumber(lock[6] or NEVER) or 0
  if not writer and not lock[10] and read_min > now and readers ~= FEW then
    local deadline = now + lease
    local record = string.format(RECORD, 'h', deadline, us, readers)
    local life = deadline + GRACE
    local least = math.min(read_min, deadline)
    local done
    if life > (tonumber(lock[3]) or 0) then
      life = string.format('%.0f', life + SLACK)
      done = redis.pcall(
        'HSET', KEYS[1], 'version', VERSION, 'fence', string.sub(record, 15, 30), mine, record, 'i:' .. readers, caller,
        'readers', readers + 1, 'read_min', least, 'until', life
      )
      if type(done) == 'number' then
        redis.call('PEXPIREAT', KEYS[1], life)
      end
    else
      done = redis.pcall(
        'HSET', KEYS[1], 'fence', string.sub(record, 15, 30), mine, record, 'i:' .. readers, caller,
        'readers', readers + 1, 'read_min', least
      )
    end
    return type(done) == 'number' and { now, 'granted', 0, us, deadline } or done
  elseif writer and not waits then
    local ends = tonumber(string.sub(writer, 2, 14)) or 0
    if ends > now and string.sub(writer, 31) ~= caller then
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
