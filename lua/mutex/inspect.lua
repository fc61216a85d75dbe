-- Tells whose value a mutex holds, and until when. Reads only.
--
-- KEYS[1]  the mutex
-- ARGV[1]  the server's name    ARGV[2]  0
--
-- Reply: now, status, 0
--   held    value, deadline (0: never)
--   absent  nobody holds it
-- Errors: WRONGTYPE, LOCKARGS.
-- Cost: TIME, GET and PTTL.

-- @include constants
-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return refuse('count')
end
local value = redis.pcall('GET', key)
if type(value) == 'table' then
  return value
elseif not value then
  return { now, 'absent', 0 }
end
local left = call('PTTL', key)
return { now, 'held', 0, value, left >= 0 and now + left or 0 }
