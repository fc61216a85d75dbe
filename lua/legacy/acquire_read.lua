-- Takes the two-key lock for reading, as the published protocol does: refused while the writer's
-- key exists, else the readers' key is set.
--
-- KEYS[1]  the readers' key         KEYS[2]  the writer's key
-- ARGV[1]  the server's name        ARGV[2]  not_after, ms by the server's clock (0: none)
-- ARGV[3]  id                       ARGV[4]  lease, s
--
-- Reply: status, now, 0
--   granted  its id, 0, the end of the lease (ms)
--   refused  the writer's key exists
--   stale    it came after not_after
-- Errors: WRONGTYPE, LOCKARGS.
-- Cost: TIME, GET, EXISTS, PTTL, SET, PTTL.
--
-- Beside the published protocol: the value names the reader that came last, so that an earlier one
-- does not delete the key under it; a short lease does not cut a longer one short; and a call that
-- is repeated changes nothing, unless another reader has come between: of that one the key does not
-- tell, so it is set anew.

-- @include constants
-- @include clock

local lease = tonumber(ARGV[4])
if #KEYS ~= 2 or #ARGV ~= 4 or not lease or lease < 1 or lease % 1 ~= 0 then
  return { err = 'LOCKARGS a lease in whole seconds' }
elseif ARGV[2] ~= '0' and tonumber(ARGV[2]) < now_ms then
  return string.format('stale %.0f 0', now_ms)
end
local current_value = redis.pcall('GET', KEYS[1])
if type(current_value) == 'table' and current_value.err then
  return current_value
elseif redis.call('EXISTS', KEYS[2]) == 1 then
  return string.format('refused %.0f 0', now_ms)
end
if current_value ~= ARGV[3] then
  -- In ms: what is left would be rounded to whole seconds, and each reader that comes could take
  -- off half a second.
  local lease_ms = math.max(lease * 1000, redis.call('PTTL', KEYS[1]))
  local set_reply = redis.pcall('SET', KEYS[1], ARGV[3], 'PX', string.format('%.0f', lease_ms))
  if set_reply.err then
    return { err = string.match(set_reply.err, ERROR_PATTERN) or 'ERR ' .. set_reply.err }
  end
end
-- The key may last longer, by another reader's lease.
return string.format('granted %.0f 0 %s 0 %.0f', now_ms, ARGV[3], now_ms + math.min(lease * 1000, redis.call('PTTL', KEYS[1])))
