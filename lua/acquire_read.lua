-- Acquires the lock for reading, or joins the queue. A repeated call is a waiter's poll. Idempotent
-- for an acquisition.
--
-- KEYS, ARGV, reply, errors: as in acquire_write.lua.
-- Cost: with no writer and no queue HGET, TIME, HSET, at times PEXPIREAT, and HGET from the third
-- reader on; beside cached readers HGET, TIME, two HMGET, HSET; a refused try HGET, TIME;
-- of a waiter as in acquire_write.lua; otherwise a bounded number of calls, whatever the number of
-- readers and waiters.

-- @include constants

-- Fast paths: there is no writer, no queue and no expired reader; or the caller waits, or reads
-- beside cached readers, and nothing else changes.
-- @include fast/acquire_args
if is_fast_path then
  local line_shape, min_deadline, flag, line_tail = is_free and 'F', nil, nil, nil
  if not is_free and not wants_cached and line and arg_count < 9 and sub(line, 16, 31) < now_us_text then
    local _, digits_end = find(line, '^2[RSW]%d+')
    if digits_end and digits_end > 44 then
      line_shape, min_deadline, flag, line_tail = sub(line, 2, 2), sub(line, 32, 44), sub(line, 45, 45), sub(line, 46)
      if min_deadline <= now_ms_text or line_tail == caller or (line_shape == 'S' and digits_end ~= #line) then
        line_shape = nil -- an expired holder, its own lease, or a malformed line: the slow path decides
      elseif line_shape == 'W' and is_try then
        return 'busy ' .. now_ms_text .. ' 0 ' .. min_deadline
      end
    end
  end
  if line_shape and line_shape ~= 'W' then
-- @include fast/lease_expiry
    local new_line, extra_fields = nil, nil
    if line_shape == 'F' then
      new_line = '2R' .. key_expiry .. now_us_text .. deadline_text .. long_flag .. caller
    elseif line_shape == 'S' then
      local own_field = 'r:' .. caller
      if flag <= '3' and line_tail >= '1' and line_tail ~= LISTPACK_READERS .. ''
        and not redis.call('HGET', KEYS[1], own_field) then
        if long_flag == '1' then
          flag = flag < '2' and '1' or '3'
        end
        new_line = '2S' .. key_expiry .. now_us_text
          .. (deadline_text < min_deadline and deadline_text or min_deadline) .. flag .. line_tail + 1
        extra_fields = { own_field, 'h' .. deadline_text .. now_us_text .. line_tail, 'i:' .. line_tail, caller }
      end
    elseif flag <= '1' and #line_tail >= 12 and #line_tail <= 40 and find(line_tail, '^[%w_-]+$') then
      new_line = '2S' .. key_expiry .. now_us_text
        .. (deadline_text < min_deadline and deadline_text or min_deadline) .. (long_flag > flag and long_flag or flag) .. '2'
      extra_fields = {
        'r:' .. line_tail, 'h' .. min_deadline .. sub(line, 16, 31) .. '0', 'i:0', line_tail,
        'r:' .. caller, 'h' .. deadline_text .. now_us_text .. '1', 'i:1', caller,
      }
    end
    if new_line then
-- @include fast/acquire_commit
    end
  elseif line and not is_try and find(line, '^2[WQ]') then
    local mode = 'r'
-- @include fast/enqueue
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
