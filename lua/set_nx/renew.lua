-- Extends the lease of a mutex for the holder with this value, and never shortens it.
--
-- KEYS[1]  the mutex
-- ARGV[1]  the server's name
-- ARGV[2]  id, the value     ARGV[3]  lease, ms
--
-- Reply: status, now, 0
--   granted   the id, 0, deadline
--   not_held  the mutex has another value, or none
-- Errors: WRONGTYPE, LOCKARGS. A full memory does not stop it.
-- Cost: TIME, GET, PTTL, and PEXPIREAT; HDEL and SET in place of PEXPIREAT if the lease already
-- ends later.

-- @include constants
-- @include clock
-- @include prelude

local lease = integer_arg(3, 1, MAX_DURATION)
if #KEYS ~= 1 or #ARGV ~= 3 then
  return argument_error('number of keys or arguments')
elseif not is_id(ARGV[2]) then
  return argument_error('id')
elseif not lease then
  return argument_error('lease')
end
local value = redis.pcall('GET', key)
if type(value) == 'table' then
  return server_error(value)
elseif value ~= ARGV[2] then
  return ok_reply('not_held', 0)
end
return run(function()
  local remaining_ms = call('PTTL', key)
  if remaining_ms < lease then
    remaining_ms = lease
    call('PEXPIREAT', key, format('%.0f', now_ms + lease))
  else
    -- Written unchanged, so that replicas can confirm it. The HDEL fails, because the key is not a
    -- hash, and after it the server does not check its memory.
    redis.pcall('HDEL', key, '-')
    call('SET', key, value, 'XX', 'KEEPTTL')
  end
  return ok_reply('granted', 0, value, 0, now_ms + remaining_ms)
end)
