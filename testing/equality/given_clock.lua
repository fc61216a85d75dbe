-- In front of each script: the time is what the test says, wherever a script would go by the
-- server's own.
local redis = (function(server)
  local time = { string.match(server.call('GET', 'clock'), '(%d+) (%d+)') }
  local now = time[1] * 1000 + math.floor(time[2] / 1000)

  -- By the server's own clock. Redis 6.2 does not tell it: there it is what is left, from now.
  local function ends_at(key)
    local ends, before = server.pcall('PEXPIRETIME', key), nil
    while type(ends) == 'table' do
      before, ends = server.call('TIME'), server.call('PTTL', key)
      local after = server.call('TIME')
      local ms, later = math.floor(before[2] / 1000), math.floor(after[2] / 1000)
      if ends >= 0 then
        ends = before[1] == after[1] and ms == later and before[1] * 1000 + ms + ends or {}
      end
    end
    return ends
  end

  local function left(key)
    local ends = ends_at(key)
    return type(ends) == 'number' and ends >= 0 and math.max(ends - now, 0) or ends
  end

  local function by_given_time(call)
    return function(name, ...)
      local words = { ... }
      if name == 'TIME' then
        return time
      elseif name == 'PTTL' then
        return left(...)
      elseif name == 'SET' and (words[3] == 'EX' or words[3] == 'PX') then
        local ms = words[4] * (words[3] == 'EX' and 1000 or 1)
        words[3], words[4] = 'PXAT', string.format('%.0f', now + ms)
        return call('SET', unpack(words))
      end
      return call(name, ...)
    end
  end

  return { call = by_given_time(server.call), pcall = by_given_time(server.pcall) }
end)(redis)
