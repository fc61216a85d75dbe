-- Takes a mutex: a string key that holds its holder's value and ends with the lease, as
-- `SET key value NX PX lease` makes it. Every library that does the same can share it.
--
-- KEYS[1]  the mutex
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id, the value     ARGV[4]  lease, ms
--
-- Reply: status, now, 0
--   granted  its id, 0, deadline: it holds, perhaps since an earlier attempt of this call (then its
--            value is written again, with the same end)
--   refused  when the holder's lease ends (ms, 0: never)
--   stale    nothing: it came past not_after
-- Errors: WRONGTYPE, LOCKARGS, OOM.
-- Cost: TIME and SET; SET, GET and PTTL more when it is held, and another SET when this acquisition
-- holds it.

-- @include constants
-- @include clock

-- Nobody holds it: the usual case.
local caller, wanted, limit = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[2])
local simple = #KEYS == 1
  and #ARGV == 4
  and #caller >= 12
  and #caller <= 40
  and string.find(caller, '^[%w_-]+$')
  and wanted
  and wanted >= 1
  and wanted <= MAX_DURATION
  and wanted % 1 == 0
  and (limit == 0 or (limit and limit >= now_ms and limit <= MAX_TIMESTAMP and limit % 1 == 0))
if simple then
  local ends = now_ms + wanted .. ''
  local set = redis.pcall('SET', KEYS[1], caller, 'NX', 'PXAT', ends)
  if set and not set.err then
    return 'granted ' .. now_ms_text .. ' 0 ' .. caller .. ' 0 ' .. ends
  end
end

-- @include prelude

local not_after, lease = integer_arg(2, 0, MAX_TIMESTAMP), integer_arg(4, 1, MAX_DURATION)
if #KEYS ~= 1 or #ARGV ~= 4 then
  return argument_error('count')
elseif not not_after then
  return argument_error('not_after')
elseif not is_id(ARGV[3]) then
  return argument_error('id')
elseif not lease then
  return argument_error('lease')
elseif not_after > 0 and now_ms > not_after then
  return ok_reply('stale', 0)
end

local deadline = now_ms + lease
local set = redis.pcall('SET', key, ARGV[3], 'NX', 'PXAT', format('%.0f', deadline))
if set and set.err then
  return server_error(set)
elseif set then
  return ok_reply('granted', 0, ARGV[3], 0, deadline)
end
local value = redis.pcall('GET', key)
if type(value) == 'table' then
  return server_error(value)
end
local left = redis.pcall('PTTL', key)
if type(left) == 'table' then
  return server_error(left)
end
local ends = left >= 0 and now_ms + left or 0
if value == ARGV[3] then
  -- The same value with the same end: it changes nothing, and replicas can confirm it.
  local again = redis.pcall('SET', key, value, 'XX', 'KEEPTTL')
  if again.err then
    return server_error(again)
  end
  return ok_reply('granted', 0, ARGV[3], 0, ends)
end
return ok_reply('refused', 0, ends)
