-- KEYS: read key, write key. ARGV: timeout, s.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
return redis.call('SET', KEYS[2], '1', 'EX', ARGV[1], 'NX') and 1 or 0
