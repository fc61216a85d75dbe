-- Takes the lock for reading, or a place in the queue; called again, it is a waiter's poll.
-- Idempotent for one acquisition.
--
-- KEYS, ARGV, reply, errors: as in acquire_write.lua.
-- Cost: with no writer and no queue HGET, TIME, HSET, at times PEXPIREAT, and HGET from the third
-- reader on; a try that is refused HGET, TIME; of a waiter as in acquire_write.lua; else a bounded
-- number of calls, whatever the number of readers and waiters.

-- @include constants

-- Fast paths: there is no writer, no queue, no dead reader to look for; or the caller waits, and
-- nothing else moves.
-- @include fast/acquire
if simple then
  local stands, least, flag, rest = free and 'F', nil, nil, nil
  if not free and line and given < 9 and sub(line, 16, 31) < now_us_text then
    local _, digits = find(line, '^2[RSW]%d+')
    if digits and digits > 44 then
      stands, least, flag, rest = sub(line, 2, 2), sub(line, 32, 44), sub(line, 45, 45), sub(line, 46)
      if least <= now_ms_text or rest == caller or (stands == 'S' and digits ~= #line) then
        stands = nil -- a dead holder, its own lease, or malformed, as will be found
      elseif stands == 'W' and tries then
        return 'refused ' .. now_ms_text .. ' 0 ' .. least
      end
    end
  end
  if stands and stands ~= 'W' then
-- @include fast/lease
    local taken, more = nil, nil
    if stands == 'F' then
      taken = '2R' .. life .. now_us_text .. ends .. long .. caller
    elseif stands == 'S' then
      local mine = 'r:' .. caller
      if flag <= '3' and rest >= '1' and rest ~= LISTPACK_READERS .. '' and not redis.call('HGET', KEYS[1], mine) then
        if long == '1' then
          flag = flag < '2' and '1' or '3'
        end
        taken = '2S' .. life .. now_us_text .. (ends < least and ends or least) .. flag .. rest + 1
        more = { mine, 'h' .. ends .. now_us_text .. rest, 'i:' .. rest, caller }
      end
    elseif flag <= '1' and #rest >= 12 and #rest <= 40 and find(rest, '^[%w_-]+$') then
      taken = '2S' .. life .. now_us_text .. (ends < least and ends or least) .. (long > flag and long or flag) .. '2'
      more = {
        'r:' .. rest, 'h' .. least .. sub(line, 16, 31) .. '0', 'i:0', rest,
        'r:' .. caller, 'h' .. ends .. now_us_text .. '1', 'i:1', caller,
      }
    end
    if taken then
-- @include fast/take
    end
  elseif line and not tries and find(line, '^2[WQ]') then
    local mode = 'r'
-- @include fast/place
  end
end

-- @include prelude
-- @include acquire_args
-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters
-- @include recall
-- @include acquire_slow

return run(function()
  return acquire('r')
end)
