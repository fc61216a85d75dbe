-- @layer
-- A write-back cache of the lock's hash. state_line.lua parses the state line into the fields that
-- it implies, a script changes fields here, and flush.lua writes them all at its end. So nothing is
-- half done when an argument or a field is malformed, or the server's memory is full.
local fields, changed, change_order = {}, {}, {}
local shape, key_expiry, stored_line = 'N', 0, false -- as stored; N: there is no key
local has_queue_fields = false -- in shape S: the hash may have ticket, reader_phase and lapsed_clients

-- Returns true if the hash can have this field.
local function is_stored(field)
  if shape == 'S' then
    return field == 'pad'
      or string.find(field, '^[ri]:') ~= nil
      or (has_queue_fields and (field == 'ticket' or field == 'reader_phase' or field == 'lapsed_clients'))
  end
  return shape == 'Q' or shape == 'P' or (shape ~= 'N' and field == 'pad')
end

local function get(field)
  local value = fields[field]
  if value == nil then
    value = is_stored(field) and call('HGET', key, field) or false
    fields[field] = value
  end
  return value
end

-- Loads fields that the script needs, in one command.
local function load_fields(field_names)
  local missing = {}
  for _, field in ipairs(field_names) do
    if fields[field] == nil and is_stored(field) then
      missing[#missing + 1] = field
    end
  end
  local values = missing[1] and call('HMGET', key, unpack(missing))
  for i, field in ipairs(missing) do
    fields[field] = values[i]
  end
end

-- Returns the value of a field that has an integer, or 0 without the field.
local function number(field)
  local value = tonumber(get(field) or 0)
  if not value or value < 0 or value > MAX_SAFE_INTEGER or value % 1 ~= 0 then
    malformed_error(field)
  end
  return value
end

-- Sets a field. False removes it.
local function put(field, value)
  fields[field] = value
  if not changed[field] then
    changed[field] = true
    change_order[#change_order + 1] = field
  end
end

local function delete_fields(...)
  for _, field in ipairs({ ... }) do
    if get(field) then
      put(field, false)
    end
  end
end

-- Extends the key's expiry to `deadline` and the grace after it.
local needed_expiry = 0
local function extend_expiry_to(deadline)
  needed_expiry = math.max(needed_expiry, deadline + KEY_GRACE)
end

-- Returns true if a holder in this state is cached: it is recalled when it blocks a waiter.
local function is_cached(state)
  return state == 'k' or state == 'c'
end

-- Returns the id in an element of the array of readers, without the mark of a cached reader.
local function reader_id(array_entry)
  return string.sub(array_entry, 1, 1) == '+' and string.sub(array_entry, 2) or array_entry
end

local function is_idle()
  return not get('writer') and number('readers') == 0 and number('waiters') == 0
end

-- The fields that only the state line implies, as a set and in order.
local implied_fields, implied_order = {}, {}

local function set_implied(field, value)
  fields[field], implied_fields[field], implied_order[#implied_order + 1] = value, true, field
end

-- Parses the head of the state line. Returns the shape, the last token and the rest of the line.
-- Returns nil if there is no key, and nil and an error reply if the key is of another kind.
local function parse_line_head(pattern)
  if not line then
    return nil, call('EXISTS', key) == 1 and { err = 'LOCKTYPE field s is missing' } or nil
  elseif type(line) == 'table' then
    return nil, server_error(line)
  end
  local version = string.sub(line, 1, 1)
  if version ~= '2' then
    return nil, { err = string.find(version, '%w') and 'LOCKVERSION ' .. version or 'LOCKTYPE malformed s' }
  end
  local line_shape, line_digits = string.match(line, pattern)
  if not line_shape and string.find(line, '^2[FWRSQPV]%d') then
    return nil, { err = 'LOCKTYPE shape ' .. string.sub(line, 2, 2) }
  elseif not line_shape or #line_digits < 29 then
    malformed_error('s')
  end
  shape, stored_line, key_expiry = line_shape, line, tonumber(string.sub(line, 3, 15))
  local last_token = string.sub(line, 16, 31)
  fields.fence = last_token
  if tonumber(last_token) >= MAX_SAFE_INTEGER then
    malformed_error('s')
  end
  return line_shape, last_token, string.sub(line, 32)
end
