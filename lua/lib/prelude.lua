-- What the slow path of every script stands on. Nothing here writes.
local call, format, key, here = redis.call, string.format, KEYS[1], ARGV[1]
local MAX_SAFE_INTEGER = 9007199254740992 -- 2^53: Lua's numbers are exact up to here
local MAX_TOKEN_LEAD = 60000 -- ms that a raised token may be ahead of the server's clock
local MAX_TICKET_LEAD = 1000000000 -- how far a ticket that comes back may be ahead of the last one given
local WIDE_PADDING = '-----------------------------------------------------------------'
local RECORD_FORMAT = '%s%013.0f%016.0f%s' -- state, deadline, token, and the rest
local us = stamp + 0 -- the server's time, us, for fencing tokens

local function refuse(what)
  return { err = 'LOCKARGS ' .. what }
end

-- A server's error as a script answers it: with its own code, where it has one, and without the
-- place in the script that 6.2 puts before that.
local function server_error(refused)
  return { err = string.match(refused.err, ERROR_PATTERN) or 'ERR ' .. refused.err }
end

-- The whole number in ARGV[at], or nil if it is none from least to most.
local function whole(at, least, most)
  local number = tonumber(ARGV[at])
  if number and number >= least and number <= most and number % 1 == 0 then
    return number
  end
end

local function is_word(text, longest)
  return text and #text >= 1 and #text <= longest and not string.find(text, '[^%w_-]')
end

local function is_id(text)
  return is_word(text, 40) and #text >= 12
end

-- A holder's record: its state, the deadline in ms, the token, and the rest (the writer's id, or
-- the reader's index). The states: 'h' (holds), 'g' (was granted, has not claimed it yet), 'k'
-- (holds, cached: it is called back when it blocks somebody), 'c' (as 'k', and was called back),
-- 'b' (was cached, is in use, and will be released).
local function record(state, deadline, token, rest)
  return format(RECORD_FORMAT, state, deadline, token, rest)
end

local function malformed(what)
  error('LOCKFOREIGN malformed ' .. what, 0)
end

-- Runs an operation. An error that is raised in it becomes an error reply with its own code, which
-- not all servers do by themselves.
local function answer(operation)
  local fine, result = pcall(operation)
  if fine then
    return result
  end
  local text = type(result) == 'table' and result.err or tostring(result)
  return { err = string.match(text, ERROR_PATTERN) or 'ERR ' .. text }
end

local function parse(text)
  local deadline, token = tonumber(string.sub(text, 2, 14)), tonumber(string.sub(text, 15, 30))
  if not deadline or not token then
    malformed('record')
  end
  return string.sub(text, 1, 1), deadline, token, string.sub(text, 31)
end

-- A reply: the status, the server's time, `more`, and what the status says, as one text.
local function reply(status, more, ...)
  local words = { status, format('%.0f', now), format('%d', more) }
  for at = 1, select('#', ...) do
    local word = select(at, ...)
    words[#words + 1] = type(word) == 'number' and format('%.0f', word) or word
  end
  return table.concat(words, ' ')
end
