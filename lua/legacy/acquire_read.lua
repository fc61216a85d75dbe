-- Acquires the two-key lock for reading, as the published protocol does: refused while the writer's
-- key exists, otherwise sets the readers' key.
--
-- KEYS[1]  the readers' key         KEYS[2]  the writer's key
-- ARGV[1]  the server's name        ARGV[2]  not_after, ms by the server's clock (0: none)
-- ARGV[3]  id                       ARGV[4]  lease, s
--
-- Reply: status, now, 0
--   granted   the id, 0, the end of the lease (ms)
--   busy      the writer's key exists
--   too_late  the call came after not_after
-- Errors: WRONGTYPE, LOCKARGS.
-- Cost: TIME, GET, EXISTS, PTTL, SET, PTTL.
--
-- Beyond the published protocol: the value names the last reader, so that an earlier reader does
-- not delete its key. A short lease does not shorten a longer one. A repeated call changes nothing,
-- unless another reader came in between: the key has only the other reader's value, so it is set
-- again.

-- @include constants
-- @include clock

local lease = tonumber(ARGV[4])
if #KEYS ~= 2 or #ARGV ~= 4 or not lease or lease < 1 or lease % 1 ~= 0 then
  return { err = 'LOCKARGS invalid lease: it is not in whole seconds' }
elseif ARGV[2] ~= '0' and tonumber(ARGV[2]) < now_ms then
  return string.format('too_late %.0f 0', now_ms)
end
local current_value = redis.pcall('GET', KEYS[1])
if type(current_value) == 'table' and current_value.err then
  return current_value
elseif redis.call('EXISTS', KEYS[2]) == 1 then
  return string.format('busy %.0f 0', now_ms)
end
if current_value ~= ARGV[3] then
  -- In ms: whole seconds would round the remaining time, and each new reader could lose half a
  -- second.
  local lease_ms = math.max(lease * 1000, redis.call('PTTL', KEYS[1]))
  local set_reply = redis.pcall('SET', KEYS[1], ARGV[3], 'PX', string.format('%.0f', lease_ms))
  if set_reply.err then
    return { err = string.match(set_reply.err, ERROR_PATTERN) or 'ERR ' .. set_reply.err }
  end
end
-- The key may last longer, by another reader's lease.
return string.format('granted %.0f 0 %s 0 %.0f', now_ms, ARGV[3], now_ms + math.min(lease * 1000, redis.call('PTTL', KEYS[1])))
