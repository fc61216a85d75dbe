-- Reads the server's time: `now_us_text`, of which tokens are made, `now_ms_text` and `now_ms`.
-- Conversions between numbers and text are costly, so texts are cut from the reply to TIME, and
-- compared as texts if their length is fixed.
time_reply = redis.pcall('TIME')
if time_reply.err then
  return { err = string.match(time_reply.err, ERROR_PATTERN) or 'ERR ' .. time_reply.err }
end
now_us_text = time_reply[1] .. (#time_reply[2] == 6 and time_reply[2] or string.sub('00000' .. time_reply[2], -6))
now_ms_text = string.sub(now_us_text, 1, -4)
now_ms = now_ms_text + 0
