-- Acquires the lock for writing, or joins the queue. A repeated call is a waiter's poll. Idempotent
-- for an acquisition.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id                   ARGV[4]  lease, ms
-- ARGV[5]  flags: f phase-fair, r readers first; then k for a cached lease, t for a try that waits
--          if only cached holders block it
-- ARGV[6]  tokens: 1, of a cached write up to TOKEN_BLOCK
-- ARGV[7]  hash tag of the slot's channels
-- and for a waiter, or with t:
-- ARGV[8]  queue terms: "<claim window, ms> <ttl, ms> <most waiters> <server of its
--          subscription>", with - for the server if it only polls
-- ARGV[9]  its ticket, from its second call on
--
-- Reply: status, now, more, then
--   granted     the id, token, deadline, and with k the last token and who recalls the lease: w, r
--               (only readers wait) or -. If the caller held before, its record is written again
--               unchanged, so that replicas can confirm it
--   queued      ticket, upper bound of the waiters ahead, deadline of the holder (ms, 0: unknown)
--   busy        deadline of the holder
--   recalling   deadline of the holder: only cached holders block the caller, and were recalled
--   queue_full  waiters, after the expired ones at the heads of the queue were dropped
--   too_late    nothing: the call came after not_after, and changed nothing
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS, OOM.
-- Cost: a free lock HGET, TIME, HSET, and at times PEXPIREAT; for a new key EXISTS and PEXPIREAT. A
-- refused try HGET, TIME and at times HMGET. Joining the queue or a poll HGET, TIME, HMGET, HSET
-- and at most three HGET. Otherwise a bounded number of calls, independent of the number of readers
-- and waiters.

-- @include constants

-- Fast paths: the lock is free; a try is refused; the caller waits, and nothing else changes.
-- @include fast/acquire_args
if is_fast_path then
  if is_free then
-- @include fast/lease_expiry
    local new_line, extra_fields = '2W' .. key_expiry .. now_us_text .. deadline_text .. long_flag .. caller, nil
-- @include fast/acquire_commit
  elseif is_try and line and #line > 45 then
    local holder_deadline, _, digits_end = sub(line, 32, 44), find(line, '^2[WRS]%d+')
    if digits_end and digits_end > 44 and holder_deadline > now_ms_text and sub(line, 46) ~= caller then
      return 'busy ' .. now_ms_text .. ' 0 ' .. holder_deadline
    end
  elseif is_try and line and find(line, '^2Q%d+$') and #line == 31 then
    local queue_state = redis.pcall('HMGET', KEYS[1], 'writer', 'waiters', 'read_min', 'cached_readers')
    local writer, holder_deadline = queue_state[1] or '', queue_state[1] and sub(queue_state[1], 2, 14) or queue_state[3] or ''
    local needs_recall = queue_state[2] or queue_state[4] or find(writer, '^[kc]') -- a queue, or a cached holder
    if not needs_recall and #holder_deadline == 13 and holder_deadline > now_ms_text and sub(writer, 31) ~= caller then
      return 'busy ' .. now_ms_text .. ' 0 ' .. holder_deadline
    end
  elseif line and not is_try then
    local mode = 'w'
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
  return acquire('w')
end)
