-- Deletes a mutex if it has the caller's value.
--
-- KEYS[1]  the mutex
-- ARGV[1]  the server's name
-- ARGV[2]  id, the value
--
-- Reply: status, now, 0; now is 0 if the script did not read the time
--   released   it held, and no longer does
--   not_found  the mutex has another value, or none
-- Errors: WRONGTYPE, LOCKARGS. A full memory does not stop it.
-- Cost: GET and DEL; TIME and another GET if the caller does not hold.

-- @include constants

-- Fast path: the caller holds.
local caller = ARGV[2]
local is_fast_path = #KEYS == 1 and #ARGV == 2 and #caller >= 12 and #caller <= 40 and string.find(caller, '^[%w_-]+$')
if is_fast_path and redis.pcall('GET', KEYS[1]) == caller then
  local del_reply = redis.pcall('DEL', KEYS[1])
  if type(del_reply) ~= 'number' then
    return { err = string.match(del_reply.err, ERROR_PATTERN) or 'ERR ' .. del_reply.err }
  end
  return 'released 0 0'
end

-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return argument_error('number of keys or arguments')
elseif not is_id(ARGV[2]) then
  return argument_error('id')
end
local value = redis.pcall('GET', key)
return type(value) == 'table' and server_error(value) or ok_reply('not_found', 0)
