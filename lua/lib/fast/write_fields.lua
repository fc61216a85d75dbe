-- Writes what a release or a pump changes: the fields in `set`, then without those in `gone`, and
-- the key's life if that must be longer (`life`). A full memory refuses nothing after an HDEL, and
-- a user who may not delete stops there. After it: `done` is a number, or the server's error.
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
    -- No later call may rely on that life.
    redis.pcall('HSET', KEYS[1], 's', sub(new_fields[2], 1, 2) .. sub(line, 3, 15) .. sub(new_fields[2], 16))
  end
end
if type(reply) ~= 'number' then
  return { err = string.match(reply.err, ERROR_PATTERN) or 'ERR ' .. reply.err }
end
