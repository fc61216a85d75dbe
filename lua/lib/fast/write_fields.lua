-- Writes the changes of a release or of grant_waiters: sets `new_fields`, deletes `removed_fields`,
-- and sets the key's expiry if there is a `new_expiry`. After an HDEL the server does not check its
-- memory, and a user who may not delete is stopped by it. After it, `reply` is a number, or the
-- server's error.
reply = reply or removed_fields and redis.pcall('HDEL', KEYS[1], '-') or redis.pcall('HSET', KEYS[1], unpack(new_fields))
if not removed_fields and type(reply) ~= 'number' and find(reply.err, 'OOM', 1, true) then
  removed_fields, reply = {}, redis.pcall('HDEL', KEYS[1], '-')
end
if removed_fields and type(reply) == 'number' then
  reply = redis.pcall('HSET', KEYS[1], unpack(new_fields))
  if removed_fields[1] and type(reply) == 'number' then
    reply = redis.pcall('HDEL', KEYS[1], unpack(removed_fields))
  end
end
if new_expiry and type(reply) == 'number' then
  reply = redis.pcall('PEXPIREAT', KEYS[1], new_expiry)
  if type(reply) ~= 'number' then
    -- The new expiry was not set, so no later call may rely on it.
    redis.pcall('HSET', KEYS[1], 's', sub(new_fields[2], 1, 2) .. sub(line, 3, 15) .. sub(new_fields[2], 16))
  end
end
if type(reply) ~= 'number' then
  return { err = string.match(reply.err, ERROR_PATTERN) or 'ERR ' .. reply.err }
end
