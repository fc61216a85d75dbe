-- Writes the changed fields in a fixed order: one HSET of the state line and the fields, one HDEL
-- of the removed fields, and PEXPIREAT if the key's expiry changes.

-- The fields that mean nothing in an idle lock.
local IDLE_FIELDS = { 'ticket', 'reader_phase', 'lapsed_clients', 'revoked_up_to', 'forced_up_to' }

local function drop_idle_fields()
  for _, field in ipairs(IDLE_FIELDS) do
    if shape == 'Q' or has_queue_fields then
      put(field, false)
    else
      fields[field] = false -- only the line could imply it
    end
  end
end

-- Returns the key's expiry, which moves later when a deadline needs it. An idle key lives for
-- KEY_GRACE from now, or from the time of the last token if the clock is behind it (a token must
-- not repeat), and at most for IDLE_KEY_TTL.
local function required_key_expiry()
  if is_idle() then
    local base_time = math.max(now_ms, math.floor(number('fence') / 1000))
    return (key_expiry > base_time + IDLE_KEY_TTL or key_expiry < base_time + KEY_GRACE) and base_time + KEY_GRACE or key_expiry
  end
  return needed_expiry > key_expiry and needed_expiry + (shape == 'N' and 0 or EXPIRY_SLACK) or key_expiry
end

local function to_text(value)
  return type(value) == 'number' and format('%.0f', value) or value
end

-- Returns the fields to set and those to delete, if the new state line implies `line_fields`.
local function changed_fields(in_line, line_fields)
  local new_fields, removed_fields = {}, {}
  if shape == 'Q' then
    for _, field in ipairs(line_fields) do
      removed_fields[#removed_fields + 1] = field -- the hash has it
    end
  end
  for _, field in ipairs(implied_order) do
    if fields[field] and not in_line[field] and not changed[field] then
      new_fields[#new_fields + 1] = field
      new_fields[#new_fields + 1] = to_text(fields[field])
    end
  end
  for _, field in ipairs(change_order) do
    local value = fields[field]
    if field == 'fence' or in_line[field] then -- luacheck: ignore 542
      -- The line implies it.
    elseif value then
      new_fields[#new_fields + 1] = field
      new_fields[#new_fields + 1] = to_text(value)
    elseif not implied_fields[field] and shape ~= 'N' then
      removed_fields[#removed_fields + 1] = field
    end
  end
  return new_fields, removed_fields
end

-- Writes the fields. A full memory must not stop a call that frees a lock or keeps one alive: after
-- an HDEL, even of a missing field, the server no longer checks its memory in this script. A call
-- that acquires begins with an HSET, so that the limit can stop it. If it also deletes fields, that
-- HSET repeats the stored line. An error of the first command is raised with nothing written.
local function write_fields(new_fields, removed_fields, frees_lock)
  if #removed_fields > 0 then
    if not frees_lock then
      call('HSET', key, 's', stored_line)
    end
    call('HDEL', key, '-') -- stops a user who may not delete
  end
  local reply = redis.pcall('HSET', key, unpack(new_fields))
  if type(reply) == 'table' then
    if not frees_lock or not string.find(reply.err, 'OOM', 1, true) then
      error(server_error(reply).err, 0)
    end
    call('HDEL', key, '-')
    call('HSET', key, unpack(new_fields))
  end
  if #removed_fields > 0 then
    call('HDEL', key, unpack(removed_fields))
  end
end

-- Removes the fields that were set in an idle lock. Returns true if that succeeded.
local function undo_write(new_fields)
  local removed_fields = {}
  for i = 1, #new_fields, 2 do
    if shape == 'N' or new_fields[i] ~= 's' then
      removed_fields[#removed_fields + 1] = new_fields[i]
    end
  end
  if removed_fields[1] and type(redis.pcall('HDEL', key, unpack(removed_fields))) == 'table' then
    return false
  elseif shape == 'F' then
    call('HSET', key, 's', stored_line)
  end
  return true
end

local function flush(frees_lock)
  if #change_order == 0 then
    return
  elseif is_idle() then
    drop_idle_fields()
  end
  local new_expiry = required_key_expiry()
  local new_shape, tail = encode_line(new_expiry)
  local new_line = format('2%s%013.0f%016.0f%s', new_shape, new_expiry, number('fence'), tail)
  local in_line, line_fields = {}, implied_by(new_shape)
  for _, field in ipairs(line_fields) do
    in_line[field] = true
  end
  local new_fields, removed_fields = changed_fields(in_line, line_fields)
  if new_line ~= stored_line or #new_fields == 0 then
    new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 's', new_line
  end
  write_fields(new_fields, removed_fields, frees_lock)
  if new_expiry ~= key_expiry then
    local reply = redis.pcall('PEXPIREAT', key, format('%.0f', new_expiry))
    if type(reply) == 'table' then
      if shape ~= 'N' and shape ~= 'F' or not undo_write(new_fields) then
        -- The new expiry was not set, so no later call may rely on it.
        call('HSET', key, 's', format('2%s%013.0f', new_shape, key_expiry) .. string.sub(new_line, 16))
      end
      error(server_error(reply).err, 0)
    end
  end
  changed, change_order, implied_fields, implied_order = {}, {}, in_line, line_fields
  shape, key_expiry, stored_line, has_queue_fields =
    new_shape, new_expiry, new_line, (new_shape == 'S' or new_shape == 'P') and string.sub(tail, 14, 14) >= '2'
end
