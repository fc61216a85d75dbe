-- The end of a fast acquire: writes `new_line` and `extra_fields`, and removes them again if the
-- server refuses to set the key's expiry.
local reply
if extra_fields then
  reply = redis.pcall('HSET', KEYS[1], 's', new_line, unpack(extra_fields))
else
  reply = redis.pcall('HSET', KEYS[1], 's', new_line)
end
if reply == 0 and not needs_new_expiry then
  return 'granted ' .. now_ms_text .. ' 0 ' .. caller .. ' ' .. now_us_text .. ' ' .. deadline_text
elseif needs_new_expiry and type(reply) == 'number' then
  reply = redis.pcall('PEXPIREAT', KEYS[1], key_expiry)
  if type(reply) ~= 'number' then
    local removed_fields = { not line and 's' or nil }
    for i = 1, extra_fields and #extra_fields or 0, 2 do
      removed_fields[#removed_fields + 1] = extra_fields[i]
    end
    if removed_fields[1] and type(redis.pcall('HDEL', KEYS[1], unpack(removed_fields))) ~= 'number' then
      -- The lease stays, and is counted. But no later call may rely on the new expiry.
      local old_expiry = line and string.sub(line, 3, 15) or '0000000000000'
      redis.pcall('HSET', KEYS[1], 's', string.sub(new_line, 1, 2) .. old_expiry .. string.sub(new_line, 16))
    elseif line then
      redis.pcall('HSET', KEYS[1], 's', line)
    end
  end
end
if type(reply) ~= 'number' then
  return { err = string.match(reply.err, ERROR_PATTERN) or 'ERR ' .. reply.err }
end
return 'granted ' .. now_ms_text .. ' 0 ' .. caller .. ' ' .. now_us_text .. ' ' .. deadline_text
