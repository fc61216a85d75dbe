-- KEYS: lock. ARGV: the time that the acquire was called with.
if redis.call('HGET', KEYS[1], 'read') == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'read')
end
