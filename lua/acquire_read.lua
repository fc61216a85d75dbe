-- Takes the lock for reading, or a place in the queue; called again, it is a waiter's poll.
-- Idempotent for one acquisition.
--
-- KEYS, ARGV, reply, errors: as in acquire_write.lua.
-- Cost: with no writer and no queue HGET, TIME, HSET, at times PEXPIREAT, and HGET from the third
-- reader on; a try that is refused HGET, TIME; else a bounded number of calls, whatever the number
-- of readers and waiters.

-- @include constants

-- No writer, no queue, no dead reader to look for: the usual cases, without the machinery below.
-- @include simple
if simple then
-- @include lease
  local taken, more
  if free then
    taken = '2R' .. life .. stamp .. ends .. long .. caller
  elseif line and string.sub(line, 16, 31) < stamp then
    local shape, least, flag, rest = string.sub(line, 2, 2), string.sub(line, 32, 44), string.sub(line, 45, 45), string.sub(line, 46)
    local _, digits = string.find(line, '^2%u%d+')
    if not digits or digits < 45 or least <= moment or rest == caller then
      taken = nil -- a queue, a dead holder, its own lease
    elseif shape == 'S' then
      local mine = 'r:' .. caller
      if digits == #line and flag <= '3' and rest >= '1' and rest ~= FEW .. '' and not redis.call('HGET', KEYS[1], mine) then
        if long == '1' then
          flag = flag < '2' and '1' or '3'
        end
        taken = '2S' .. life .. stamp .. (ends < least and ends or least) .. flag .. rest + 1
        more = { mine, 'h' .. ends .. stamp .. rest, 'i:' .. rest, caller }
      end
    elseif shape == 'R' and flag <= '1' then
      if #rest >= 12 and #rest <= 40 and not string.find(rest, '[^%w_-]') then
        taken = '2S' .. life .. stamp .. (ends < least and ends or least) .. (long > flag and long or flag) .. '2'
        more = {
          'r:' .. rest, 'h' .. least .. string.sub(line, 16, 31) .. '0', 'i:0', rest,
          'r:' .. caller, 'h' .. ends .. stamp .. '1', 'i:1', caller,
        }
      end
    elseif shape == 'W' and tries then
      return 'refused ' .. moment .. ' 0 ' .. least
    end
  end
  if taken then
-- @include take
  end
end

-- @include prelude
-- @include demand
-- @include hash
-- @include line
-- @include flush
-- @include waiters
-- @include readers
-- @include pump
-- @include recall
-- @include acquire

return answer(function()
  return acquire('r')
end)
