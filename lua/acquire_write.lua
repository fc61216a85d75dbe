-- Takes the lock for writing, or a place in the queue; called again, it is a waiter's poll.
-- Idempotent for one acquisition.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id                   ARGV[4]  lease, ms
-- ARGV[5]  flags: f phase-fair, r readers first; then k to hold it cached, t for a try that waits
--          if only cached holders are in its way
-- ARGV[6]  tokens: 1, of a cached write up to TOKEN_BLOCK
-- ARGV[7]  hash tag of the slot's channels
-- and for a waiter, or with t:
-- ARGV[8]  its place: "<claim window, ms> <ttl, ms> <most waiters> <server of its subscription>",
--          with - for the server if it polls
-- ARGV[9]  the ticket that it was given, from its second call on
--
-- Reply: status, now, more, then
--   granted  its id, token, deadline, and with k the last token and what recalls it: w, r (only
--            readers wait) or -. If it holds already, the record is written again as it is, so
--            that replicas can confirm it
--   queued   ticket, waiters ahead at the most, when the holder's lease ends (ms, 0: unknown)
--   refused  when the holder's lease ends
--   cached   the same: only cached holders are in its way, and were asked for the lock
--   full     waiters
--   stale    nothing: it came past not_after, and nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS, OOM.
-- Cost: free HGET, TIME, HSET, and at times PEXPIREAT (EXISTS and PEXPIREAT for a new key); a try
-- that is refused HGET, TIME and at times HMGET; a place in the queue or a poll HGET, TIME, HMGET,
-- HSET and at most three HGET; else a bounded number of calls, whatever the number of readers and
-- waiters.

-- @include constants

-- Fast paths: nobody is there; nobody would let a try in; the caller waits, and nothing else moves.
-- @include fast/acquire
if simple then
  if free then
-- @include fast/lease
    local taken, more = '2W' .. life .. now_us_text .. ends .. long .. caller, nil
-- @include fast/take
  elseif tries and line and #line > 45 then
    local ends, _, digits = sub(line, 32, 44), find(line, '^2[WRS]%d+')
    if digits and digits > 44 and ends > now_ms_text and sub(line, 46) ~= caller then
      return 'refused ' .. now_ms_text .. ' 0 ' .. ends
    end
  elseif tries and line and find(line, '^2Q%d+$') and #line == 31 then
    local held = redis.pcall('HMGET', KEYS[1], 'writer', 'waiters', 'read_min', 'cached')
    local writer, ends = held[1] or '', held[1] and sub(held[1], 2, 14) or held[3] or ''
    local calls = held[2] or held[4] or find(writer, '^[kc]') -- a queue, or somebody to call back
    if not calls and #ends == 13 and ends > now_ms_text and sub(writer, 31) ~= caller then
      return 'refused ' .. now_ms_text .. ' 0 ' .. ends
    end
  elseif line and not tries then
    local mode = 'w'
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
  return acquire('w')
end)
