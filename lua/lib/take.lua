-- The end of a usual acquire: writes what it takes, and if the key's life is refused, takes it back.
local done = redis.pcall('HSET', KEYS[1], unpack(set))
if longer and type(done) == 'number' then
  done = redis.pcall('PEXPIREAT', KEYS[1], life)
  if type(done) ~= 'number' then
    local gone = {}
    for at = line and 3 or 1, #set, 2 do
      gone[#gone + 1] = set[at]
    end
    if gone[1] and type(redis.pcall('HDEL', KEYS[1], unpack(gone))) ~= 'number' then
      -- It stays, counted; but no later call may rely on that life.
      local was = line and string.sub(line, 3, 15) or '0000000000000'
      redis.pcall('HSET', KEYS[1], 's', string.sub(set[2], 1, 2) .. was .. string.sub(set[2], 16))
    elseif line then
      redis.pcall('HSET', KEYS[1], 's', line)
    end
  end
end
if type(done) ~= 'number' then
  return { err = string.match(done.err, ERROR) or 'ERR ' .. done.err }
end
return 'granted ' .. moment .. ' 0 ' .. stamp .. ' ' .. ends
