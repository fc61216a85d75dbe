-- Writes the record of a client: who the client is, in words.
--
-- KEYS[1]  the record
-- ARGV[1]  the server's name
-- ARGV[2]  how long the client has run, ms
-- ARGV[3]  how long the record is kept, ms
-- ARGV[4]  the description: words of printable ASCII, at most 256 bytes
--
-- Reply: status, now, 0
--   written
-- Errors: WRONGTYPE (a lock has the key), LOCKARGS.
-- Cost: TIME and SET.

-- @include constants
-- @include clock
-- @include prelude

local age_ms, ttl_ms, description = integer_arg(2, 0, MAX_TIMESTAMP), integer_arg(3, 1, MAX_DURATION), ARGV[4]
if #KEYS ~= 1 or #ARGV ~= 4 then
  return argument_error('number of keys or arguments')
elseif not age_ms or not ttl_ms then
  return argument_error('time')
elseif #description == 0 or #description > 256 or string.find(description, '[^ -~]') then
  return argument_error('description')
end
local started_ms = math.max(now_ms - age_ms, 0)
local record = format('1 %.0f %s', started_ms, description)
-- GET makes the server refuse a key of another type. The reply is the old record, if there is one.
local previous = redis.pcall('SET', key, record, 'PX', format('%.0f', ttl_ms), 'GET')
if type(previous) == 'table' then
  return server_error(previous)
end
return ok_reply('written', 0)
