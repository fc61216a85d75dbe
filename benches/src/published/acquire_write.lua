-- The published single-hash lock's acquire for writing. KEYS: the lock. ARGV: key timeout, read
-- timeout, write timeout, now (all ms).
local now = tonumber(ARGV[4])
local write = redis.call('HGET', KEYS[1], 'write')
if write and now - tonumber(write) <= tonumber(ARGV[3]) then
  return 0
end
local read = redis.call('HGET', KEYS[1], 'read')
if read and now - tonumber(read) <= tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'write', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
