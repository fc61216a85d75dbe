-- Returns the record of a client. Reads only.
--
-- KEYS[1]  the record
-- ARGV[1]  the server's name
--
-- Reply, a list: status, now, 0
--   found      the text of the record
--   not_found  there is no record, or the record is longer than MAX_RECORD
-- Errors: WRONGTYPE, LOCKARGS.
-- Cost: TIME and GET.

-- @include constants
-- @include clock
-- @include prelude

local MAX_RECORD = 512 -- bytes: longer than any record, and short enough for a status of many clients

if #KEYS ~= 1 or #ARGV ~= 1 then
  return argument_error('number of keys or arguments')
end
local record = redis.pcall('GET', key)
if type(record) == 'table' then
  return server_error(record)
elseif not record or #record > MAX_RECORD then
  return { 'not_found', now_ms, 0 }
end
return { 'found', now_ms, 0, record }
