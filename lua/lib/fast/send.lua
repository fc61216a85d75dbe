-- Writes what a release or a pump changes: the fields in `set`, then without those in `gone`, and
-- the key's life if that must be longer (`life`). A full memory refuses nothing after an HDEL, and
-- a user who may not delete stops there. After it: `done` is a number, or the server's error.
done = done or gone and redis.pcall('HDEL', KEYS[1], '-') or redis.pcall('HSET', KEYS[1], unpack(set))
if not gone and type(done) ~= 'number' and find(done.err, 'OOM', 1, true) then
  gone, done = {}, redis.pcall('HDEL', KEYS[1], '-')
end
if gone and type(done) == 'number' then
  done = redis.pcall('HSET', KEYS[1], unpack(set))
  if gone[1] and type(done) == 'number' then
    done = redis.pcall('HDEL', KEYS[1], unpack(gone))
  end
end
if life and type(done) == 'number' then
  done = redis.pcall('PEXPIREAT', KEYS[1], life)
  if type(done) ~= 'number' then
    -- No later call may rely on that life.
    redis.pcall('HSET', KEYS[1], 's', sub(set[2], 1, 2) .. sub(line, 3, 15) .. sub(set[2], 16))
  end
end
if type(done) ~= 'number' then
  return { err = string.match(done.err, ERROR_PATTERN) or 'ERR ' .. done.err }
end
