-- The end of a fast renewal: extends the holder's deadline, and never shortens it. `record` is the
-- holder's record in `holder_field`; for a sole holder it is the end of the line in `s`.
local old_deadline, key_expiry = record and tonumber(sub(record, 2, 14)), tonumber(sub(line, 3, 15))
local token = record and (holder_field == 's' and sub(line, 16, 31) or sub(record, 15, 30))
if old_deadline and key_expiry and old_deadline > now_ms and tonumber(token) == expected_token then
  local deadline = math.max(old_deadline, now_ms + lease)
  local needs_new_expiry = deadline + KEY_GRACE > key_expiry
  if needs_new_expiry then
    key_expiry = deadline + KEY_GRACE + EXPIRY_SLACK
  end
  if key_expiry > now_ms + IDLE_KEY_TTL and (flag == '0' or flag == '2') then
    flag = flag + 1
  end
  local expiry_text = needs_new_expiry and key_expiry .. '' or sub(line, 3, 15)
  -- Written even if nothing changes, so that replicas can confirm it.
  local new_fields
  if holder_field == 's' then
    new_fields = { 's', line_prefix .. expiry_text .. sub(line, 16, 31) .. deadline .. flag .. caller }
  else
    new_fields = { holder_field, new_state .. deadline .. sub(record, 15), unpack(cached_fields or {}) }
    local new_line = line_prefix .. expiry_text .. sub(line, 16, 44) .. flag .. sub(line, 46)
    if new_line ~= line then
      new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 's', new_line
    end
  end
  local reply = redis.pcall('HSET', KEYS[1], unpack(new_fields))
  if type(reply) ~= 'number' and find(reply.err, 'OOM', 1, true) then
    reply = redis.pcall('HDEL', KEYS[1], '-') -- after it, the server does not check its memory
    if type(reply) == 'number' then
      reply = redis.pcall('HSET', KEYS[1], unpack(new_fields))
    end
  end
  if needs_new_expiry and type(reply) == 'number' then
    reply = redis.pcall('PEXPIREAT', KEYS[1], expiry_text)
    if type(reply) ~= 'number' then
      -- The new expiry was not set, so no later call may rely on it.
      redis.pcall('HSET', KEYS[1], 's', line, holder_field, holder_field == 's' and line or record)
    end
  end
  if type(reply) ~= 'number' then
    return { err = string.match(reply.err, ERROR_PATTERN) or 'ERR ' .. reply.err }
  end
  return 'renewed ' .. now_ms_text .. ' 0 ' .. token .. ' ' .. deadline .. cached_reply
end
