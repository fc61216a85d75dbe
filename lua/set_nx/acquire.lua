-- Acquires a mutex: a string key with its holder's value that expires with the lease, as
-- `SET key value NX PX lease` makes it. Libraries that use the same command can share it.
--
-- KEYS[1]  the mutex
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id, the value     ARGV[4]  lease, ms
--
-- Reply: status, now, 0
--   granted   the id, 0, deadline: it holds, perhaps since an earlier attempt of this call (then
--             its value is written again, with the same expiry)
--   busy      deadline of the holder (ms, 0: never)
--   too_late  nothing: the call came after not_after
-- Errors: WRONGTYPE, LOCKARGS, OOM.
-- Cost: TIME and SET; SET, GET and PTTL more if it is held, and another SET if this acquisition
-- holds it.

-- @include constants
-- @include clock

-- Fast path: the mutex is free.
local caller, lease_arg, not_after_arg = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[2])
local is_fast_path = #KEYS == 1
  and #ARGV == 4
  and #caller >= 12
  and #caller <= 40
  and string.find(caller, '^[%w_-]+$')
  and lease_arg
  and lease_arg >= 1
  and lease_arg <= MAX_DURATION
  and lease_arg % 1 == 0
  and (
    not_after_arg == 0
    or (not_after_arg and not_after_arg >= now_ms and not_after_arg <= MAX_TIMESTAMP and not_after_arg % 1 == 0)
  )
if is_fast_path then
  local deadline_text = now_ms + lease_arg .. ''
  local set_reply = redis.pcall('SET', KEYS[1], caller, 'NX', 'PXAT', deadline_text)
  if set_reply and not set_reply.err then
    return 'granted ' .. now_ms_text .. ' 0 ' .. caller .. ' 0 ' .. deadline_text
  end
end

-- @include prelude

local not_after, lease = integer_arg(2, 0, MAX_TIMESTAMP), integer_arg(4, 1, MAX_DURATION)
if #KEYS ~= 1 or #ARGV ~= 4 then
  return argument_error('number of keys or arguments')
elseif not not_after then
  return argument_error('not_after')
elseif not is_id(ARGV[3]) then
  return argument_error('id')
elseif not lease then
  return argument_error('lease')
elseif not_after > 0 and now_ms > not_after then
  return ok_reply('too_late', 0)
end

local deadline = now_ms + lease
local set_reply = redis.pcall('SET', key, ARGV[3], 'NX', 'PXAT', format('%.0f', deadline))
if set_reply and set_reply.err then
  return server_error(set_reply)
elseif set_reply then
  return ok_reply('granted', 0, ARGV[3], 0, deadline)
end
local value = redis.pcall('GET', key)
if type(value) == 'table' then
  return server_error(value)
end
local remaining_ms = redis.pcall('PTTL', key)
if type(remaining_ms) == 'table' then
  return server_error(remaining_ms)
end
local holder_deadline = remaining_ms >= 0 and now_ms + remaining_ms or 0
if value == ARGV[3] then
  -- Written with the same value and expiry, so that replicas can confirm it.
  local rewrite_reply = redis.pcall('SET', key, value, 'XX', 'KEEPTTL')
  if rewrite_reply.err then
    return server_error(rewrite_reply)
  end
  return ok_reply('granted', 0, ARGV[3], 0, holder_deadline)
end
return ok_reply('busy', 0, holder_deadline)
