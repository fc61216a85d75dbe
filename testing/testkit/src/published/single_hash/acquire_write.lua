-- KEYS: lock. ARGV: key timeout, read timeout, write timeout, the client's time; all in ms.
local wrote = redis.call('HGET', KEYS[1], 'write')
if wrote and ARGV[4] - wrote <= tonumber(ARGV[3]) then
  return 0
end
local read = redis.call('HGET', KEYS[1], 'read')
if read and ARGV[4] - read <= tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'write', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
