-- What any acquire of this protocol does at least: it asks for the time, reads the fields, writes
-- two of them and answers in the envelope. It checks nothing. KEYS: the lock. ARGV: the id, and for
-- how long the key is to live, if that is to be set as well (ms).
local clock = redis.call('TIME')
local now, us = clock[1] * 1000 + math.floor(clock[2] / 1000), clock[1] * 1000000 + clock[2]
redis.call('HMGET', KEYS[1], 'version', 'fence', 'writer', 'readers', 'waiters')
redis.call('HSET', KEYS[1], 'writer', ARGV[1], 'fence', clock[2])
if ARGV[2] then
  redis.call('PEXPIREAT', KEYS[1], now + ARGV[2])
end
return { now, 'granted', 0, us, now }
