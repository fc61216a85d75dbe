-- What any release of this protocol does at least: see acquire.lua. KEYS: the lock. ARGV: for how
-- long the key is to live, if that is to be set as well (ms).
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('HMGET', KEYS[1], 'version', 'writer', 'readers', 'waiters', 'fence')
redis.call('HDEL', KEYS[1], 'writer', 'until')
if ARGV[1] then
  redis.call('PEXPIREAT', KEYS[1], now + ARGV[1])
end
return { now, 'released', 0 }
