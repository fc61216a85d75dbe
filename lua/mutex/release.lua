-- Deletes a mutex if it holds its holder's value. Nobody else's.
--
-- KEYS[1]  the mutex
-- ARGV[1]  the server's name
-- ARGV[2]  id, the value
--
-- Reply: status, now, 0
--   released  it held, and no longer does
--   absent    it holds another value, or none
-- Errors: WRONGTYPE, LOCKARGS. A full memory does not stop it.
-- Cost: TIME, GET and DEL.

-- @include constants
-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return refuse('count')
elseif not is_id(ARGV[2]) then
  return refuse('id')
end
local value = redis.pcall('GET', key)
if type(value) == 'table' then
  return value
elseif value ~= ARGV[2] then
  return reply('absent', 0)
end
call('DEL', key)
return reply('released', 0)
