-- Acquires the two-key lock for writing, as the published protocol does: refused while the readers'
-- key exists, otherwise sets the writer's key if it does not exist.
--
-- KEYS[1]  the readers' key         KEYS[2]  the writer's key
-- ARGV[1]  the server's name        ARGV[2]  not_after, ms by the server's clock (0: none)
-- ARGV[3]  id                       ARGV[4]  lease, s
--
-- Reply: status, now, 0
--   granted   the id, 0, the end of the lease (ms)
--   busy      one of the keys exists
--   too_late  the call came after not_after
-- Errors: WRONGTYPE, LOCKARGS.
-- Cost: TIME, GET, EXISTS, SET, PTTL.
--
-- Beyond the published protocol: the value is the id, so that no other client of this library
-- deletes the key, and a repeated call has the same reply.

-- @include constants
-- @include clock

local lease = tonumber(ARGV[4])
if #KEYS ~= 2 or #ARGV ~= 4 or not lease or lease < 1 or lease % 1 ~= 0 then
  return { err = 'LOCKARGS invalid lease: it is not in whole seconds' }
elseif ARGV[2] ~= '0' and tonumber(ARGV[2]) < now_ms then
  return string.format('too_late %.0f 0', now_ms)
end
local current_value = redis.pcall('GET', KEYS[2])
if type(current_value) == 'table' and current_value.err then
  return current_value
elseif current_value ~= ARGV[3] then
  local set_reply = redis.call('EXISTS', KEYS[1]) == 0 and redis.pcall('SET', KEYS[2], ARGV[3], 'EX', lease, 'NX')
  if not set_reply then
    return string.format('busy %.0f 0', now_ms)
  elseif set_reply.err then
    return { err = string.match(set_reply.err, ERROR_PATTERN) or 'ERR ' .. set_reply.err }
  end
end
return string.format('granted %.0f 0 %s 0 %.0f', now_ms, ARGV[3], now_ms + redis.call('PTTL', KEYS[2]))
