-- Returns a fenced value and its token. Reads only.
--
-- KEYS[1]  the value
-- ARGV[1]  the server's name      ARGV[2]  name of the lock
--
-- Reply, a list: status, now, 0
--   value       token, value
--   no_value    token: the value was deleted or has expired
--   not_found   there is no key: no writer has written, or it is lost
--   other_lock  name of the value's lock
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS.
-- Cost: TIME and HMGET; EXISTS if there is no key.

-- @include constants
-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return argument_error('number of keys or arguments')
elseif ARGV[2] == '' or #ARGV[2] > 512 then
  return argument_error('lock')
end

-- @include fenced_value

return run(function()
  return load_line('value') or (stored_line and value_reply()) or { 'not_found', now_ms, 0 }
end)
