-- Whether the writer of a call may write, and the write. Tokens are compared as texts of fixed
-- length.

-- Returns the reply that refuses the writer, or nil if it may write.
local function refusal()
  if not stored_line or token > stored_token then
    return nil
  elseif token < stored_token then
    return ok_reply('stale', 0, stored_token + 0)
  elseif writer ~= stored_writer and predecessor ~= stored_writer then
    return ok_reply('taken_over', 0, stored_writer)
  end
end

-- Returns true if the last call was one of this writer.
local function is_last_writer()
  return token == stored_token and writer == stored_writer
end

-- Returns true if this writer has already made a later call.
local function is_overtaken()
  return is_last_writer() and sequence < stored_sequence
end

-- Returns true if this call is repeated, or overtaken.
local function has_run()
  return is_last_writer() and sequence <= stored_sequence
end

-- Writes the line as it is. WAIT confirms the last write of the connection, so an overtaken call
-- writes too: then its confirmation covers the later call.
local function rewrite_line()
  call('HSET', key, 's', stored_line)
end

-- Writes the line, and the value unless it is nil. Sets the expiry of the key if it changes.
local function write_value(expiry, deadline, value)
  local new_line = format('2V%013.0f%s%013.0f%.0f %s', expiry, token, deadline, sequence, writer)
  local field_values = { 's', new_line }
  if not stored_line then
    field_values = { 's', new_line, 'lock', ARGV[2] }
  end
  if value then
    field_values[#field_values + 1] = 'value'
    field_values[#field_values + 1] = value
  end
  call('HSET', key, unpack(field_values))
  if expiry ~= key_expiry then
    call('PEXPIREAT', key, format('%.0f', expiry))
  end
end
