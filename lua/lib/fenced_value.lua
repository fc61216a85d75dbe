-- A fenced value as it is stored.
local MS_PATTERN, TOKEN_PATTERN = '(' .. string.rep('%d', 13) .. ')', '(' .. string.rep('%d', 16) .. ')'
local LINE_PATTERN = '^2V' .. MS_PATTERN .. TOKEN_PATTERN .. MS_PATTERN .. '(%d+) ([%w_-]+)$'
local NEVER = MAX_TIMESTAMP -- the deadline of a value, and the expiry of a key, without a time to live
local stored_line, stored_value
local key_expiry, stored_token, value_deadline, stored_sequence, stored_writer = NEVER, '', 0, 0, ''

-- Reads the line, and a field. If the key is not a value of this lock, returns the reply that
-- refuses the call.
local function load_line(field)
  local fields = redis.pcall('HMGET', key, 's', 'lock', field)
  if fields.err then
    return server_error(fields)
  end
  stored_line, stored_value = fields[1], fields[3]
  if not stored_line then
    return call('EXISTS', key) == 1 and { err = 'LOCKTYPE field s is missing' } or nil
  end
  local version = string.sub(stored_line, 1, 1)
  if version ~= '2' then
    return { err = string.find(version, '%w') and 'LOCKVERSION ' .. version or 'LOCKTYPE malformed s' }
  end
  local expiry, last_token, deadline, last_sequence, last_writer = string.match(stored_line, LINE_PATTERN)
  if not last_writer then
    local other_shape = string.match(stored_line, '^2([FWRSQP])%d')
    return { err = other_shape and 'LOCKTYPE shape ' .. other_shape or 'LOCKTYPE not a fenced value' }
  end
  key_expiry, value_deadline, stored_sequence = expiry + 0, deadline + 0, last_sequence + 0
  stored_token, stored_writer = last_token, last_writer
  if fields[2] ~= ARGV[2] then
    return { 'other_lock', now_ms, 0, fields[2] }
  end
end

-- Returns true if there is a value that has not expired. A deletion sets its deadline to 0.
local function has_value()
  return value_deadline > now_ms
end

local function value_reply()
  if has_value() and stored_value then
    return { 'value', now_ms, 0, stored_token + 0, stored_value }
  end
  return { 'no_value', now_ms, 0, stored_token + 0 }
end
