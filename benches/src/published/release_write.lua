-- The published single-hash lock's release of a write. KEYS: the lock. ARGV: the time that the
-- acquire was given.
if redis.call('HGET', KEYS[1], 'write') == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'write')
  return 1
end
return 0
