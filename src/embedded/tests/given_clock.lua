-- In front of each script: the time is what the test says, wherever a script would go by the
-- server's own.
local redis = (function(server)
  local time = { string.match(server.call('GET', 'clock'), '(%d+) (%d+)') }
  local now = time[1] * 1000 + math.floor(time[2] / 1000)

  local function left(call, key)
    local ends = call('PEXPIRETIME', key)
    return type(ends) == 'number' and ends >= 0 and math.max(ends - now, 0) or ends
  end

  local function by_given_time(call)
    return function(name, ...)
      local words = { ... }
      if name == 'TIME' then
        return time
      elseif name == 'PTTL' then
        return left(call, ...)
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
