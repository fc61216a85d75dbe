-- The end of a fast renewal: makes the deadline of the holder later, never sooner. Its record is
-- `text`, in `field`; of a sole holder the end of the line, in `s`.
local was, life = text and tonumber(sub(text, 2, 14)), tonumber(sub(line, 3, 15))
local token = text and (field == 's' and sub(line, 16, 31) or sub(text, 15, 30))
if was and life and was > now_ms and tonumber(token) == asked then
  local deadline = math.max(was, now_ms + lease)
  local longer = deadline + KEY_GRACE > life
  if longer then
    life = deadline + KEY_GRACE + EXPIRY_SLACK
  end
  if life > now_ms + IDLE_KEY_TTL and (flag == '0' or flag == '2') then
    flag = flag + 1
  end
  local kept = longer and life .. '' or sub(line, 3, 15)
  -- Written even if nothing changes, so that replicas can confirm it.
  local set
  if field == 's' then
    set = { 's', shape .. kept .. sub(line, 16, 31) .. deadline .. flag .. caller }
  else
    set = { field, 'h' .. deadline .. sub(text, 15) }
    local changed = shape .. kept .. sub(line, 16, 44) .. flag .. sub(line, 46)
    if changed ~= line then
      set[3], set[4] = 's', changed
    end
  end
  local done = redis.pcall('HSET', KEYS[1], unpack(set))
  if type(done) ~= 'number' and find(done.err, 'OOM', 1, true) then
    done = redis.pcall('HDEL', KEYS[1], '-') -- a full memory refuses nothing after it
    if type(done) == 'number' then
      done = redis.pcall('HSET', KEYS[1], unpack(set))
    end
  end
  if longer and type(done) == 'number' then
    done = redis.pcall('PEXPIREAT', KEYS[1], kept)
    if type(done) ~= 'number' then
      -- No later call may rely on that life.
      redis.pcall('HSET', KEYS[1], 's', line, field, field == 's' and line or text)
    end
  end
  if type(done) ~= 'number' then
    return { err = string.match(done.err, ERROR_PATTERN) or 'ERR ' .. done.err }
  end
  return 'renewed ' .. now_ms_text .. ' 0 ' .. token .. ' ' .. deadline
end
