-- Reads the server's time: `stamp` in us, which tokens are made of, and `moment` and `now` in ms.
-- Numbers are costly to turn into text and back, so what can is cut out of what TIME has said, and
-- compared as text where its length is fixed.
clock = redis.pcall('TIME')
if clock.err then
  return { err = string.match(clock.err, ERROR_PATTERN) or 'ERR ' .. clock.err }
end
stamp = clock[1] .. (#clock[2] == 6 and clock[2] or string.sub('00000' .. clock[2], -6))
moment = string.sub(stamp, 1, -4)
now = moment + 0
