-- What the slow paths of all scripts share. Nothing here writes.
local call, format, key, server_name = redis.call, string.format, KEYS[1], ARGV[1]
local MAX_SAFE_INTEGER = 9007199254740992 -- 2^53: up to here, Lua's numbers are exact
local MAX_TOKEN_LEAD = 60000 -- ms by which a raised token may be ahead of the server's clock
local MAX_TICKET_LEAD = 1000000000 -- how far the ticket of a returning waiter may be ahead of the last ticket
local TABLE_PADDING = '-----------------------------------------------------------------'
local RECORD_FORMAT = '%s%013.0f%016.0f%s' -- state, deadline, token, rest
local now_us = now_us_text + 0 -- the server's time in us, for fencing tokens

local function argument_error(name)
  return { err = 'LOCKARGS invalid ' .. name }
end

-- Returns an error of the server as the reply of a script. Keeps the error code, and removes the
-- position in the script that Redis 6.2 prepends.
local function server_error(error_reply)
  return { err = string.match(error_reply.err, ERROR_PATTERN) or 'ERR ' .. error_reply.err }
end

-- Returns the integer in ARGV[index], or nil if it is not one from `min` to `max`.
local function integer_arg(index, min, max)
  local value = tonumber(ARGV[index])
  if value and value >= min and value <= max and value % 1 == 0 then
    return value
  end
end

local function is_word(text, max_len)
  return text and #text >= 1 and #text <= max_len and not string.find(text, '[^%w_-]')
end

local function is_id(text)
  return is_word(text, 40) and #text >= 12
end

-- Encodes a holder's record: state, deadline in ms, token, and the rest (the writer's id, or the
-- reader's index). The states: 'h' (holds), 'g' (granted, not yet claimed), 'k' (holds and is
-- cached: it is recalled when it blocks a waiter), 'c' (as 'k', and was recalled), 'b' (was cached,
-- is in use, and will be released).
local function encode_record(state, deadline, token, rest)
  return format(RECORD_FORMAT, state, deadline, token, rest)
end

local function malformed_error(part)
  error('LOCKTYPE malformed ' .. part, 0)
end

-- Runs an operation. An error that is raised in it becomes an error reply with its own code: not
-- all servers do that.
local function run(operation)
  local is_ok, result = pcall(operation)
  if is_ok then
    return result
  end
  local message = type(result) == 'table' and result.err or tostring(result)
  return { err = string.match(message, ERROR_PATTERN) or 'ERR ' .. message }
end

local function decode_record(record)
  local deadline, token = tonumber(string.sub(record, 2, 14)), tonumber(string.sub(record, 15, 30))
  if not deadline or not token then
    malformed_error('record')
  end
  return string.sub(record, 1, 1), deadline, token, string.sub(record, 31)
end

-- Returns a reply as one text: the status, the server's time, `more`, and what belongs to the
-- status.
local function ok_reply(status, has_more_work, ...)
  local parts = { status, format('%.0f', now_ms), format('%d', has_more_work) }
  for i = 1, select('#', ...) do
    local part = select(i, ...)
    parts[#parts + 1] = type(part) == 'number' and format('%.0f', part) or part
  end
  return table.concat(parts, ' ')
end
