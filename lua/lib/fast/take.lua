-- The end of a fast acquire: writes the line and the other fields (`more`) of what it takes, and
-- if the key's life is refused, takes it back.
local done
if more then
  done = redis.pcall('HSET', KEYS[1], 's', taken, unpack(more))
else
  done = redis.pcall('HSET', KEYS[1], 's', taken)
end
if done == 0 and not longer then
  return 'granted ' .. now_ms_text .. ' 0 ' .. caller .. ' ' .. now_us_text .. ' ' .. ends
elseif longer and type(done) == 'number' then
  done = redis.pcall('PEXPIREAT', KEYS[1], life)
  if type(done) ~= 'number' then
    local gone = { not line and 's' or nil }
    for at = 1, more and #more or 0, 2 do
      gone[#gone + 1] = more[at]
    end
    if gone[1] and type(redis.pcall('HDEL', KEYS[1], unpack(gone))) ~= 'number' then
      -- It stays, counted; but no later call may rely on that life.
      local was = line and string.sub(line, 3, 15) or '0000000000000'
      redis.pcall('HSET', KEYS[1], 's', string.sub(taken, 1, 2) .. was .. string.sub(taken, 16))
    elseif line then
      redis.pcall('HSET', KEYS[1], 's', line)
    end
  end
end
if type(done) ~= 'number' then
  return { err = string.match(done.err, ERROR_PATTERN) or 'ERR ' .. done.err }
end
return 'granted ' .. now_ms_text .. ' 0 ' .. caller .. ' ' .. now_us_text .. ' ' .. ends
