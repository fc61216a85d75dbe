-- Deletes one of the two keys, if it still has the acquisition's value.
--
-- KEYS[1]  the readers' key, or the writer's
-- ARGV[1]  the server's name        ARGV[2]  id
--
-- Reply: status, now, 0
--   released   it had the acquisition's value, and is deleted
--   not_found  it does not exist, or has another value
-- Errors: WRONGTYPE, LOCKARGS.
-- Cost: TIME, GET, DEL.

-- @include constants
-- @include clock

if #KEYS ~= 1 or #ARGV ~= 2 then
  return { err = 'LOCKARGS invalid number of keys or arguments' }
end
local current_value = redis.pcall('GET', KEYS[1])
if type(current_value) == 'table' and current_value.err then
  return current_value
elseif current_value ~= ARGV[2] then
  return string.format('not_found %.0f 0', now_ms)
end
redis.call('DEL', KEYS[1])
return string.format('released %.0f 0', now_ms)
