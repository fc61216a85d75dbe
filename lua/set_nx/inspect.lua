-- Returns the value and the deadline of a mutex. Reads only.
--
-- KEYS[1]  the mutex
-- ARGV[1]  the server's name
--
-- Reply, a list: status, now, 0
--   held       value, deadline (0: never)
--   not_found  the mutex is free
-- Errors: WRONGTYPE, LOCKARGS.
-- Cost: TIME, GET and PTTL.

-- @include constants
-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 1 then
  return argument_error('number of keys or arguments')
end
local value = redis.pcall('GET', key)
if type(value) == 'table' then
  return server_error(value)
elseif not value then
  return { 'not_found', now_ms, 0 }
end
local remaining_ms = call('PTTL', key)
return { 'held', now_ms, 0, value, remaining_ms >= 0 and now_ms + remaining_ms or 0 }
