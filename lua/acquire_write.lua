-- Takes the lock for writing, or a place in the queue; called again, it is a waiter's poll.
-- Idempotent for one acquisition.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id                   ARGV[4]  lease, ms
-- ARGV[5]  fairness: f phase-fair, r readers first
-- and for a waiter:
-- ARGV[6]  claim window, ms     ARGV[7]  ttl, ms
-- ARGV[8]  ticket it had (0: none yet)
-- ARGV[9]  most waiters         ARGV[10] server of its subscription, - if it polls
-- ARGV[11] hash tag of its channel, - if none
--
-- Reply: now, status, more, then
--   granted  token, deadline; if it holds already, the record is written again as it is, so that
--            replicas can confirm it
--   queued   ticket, waiters ahead at the most, when the holder's lease ends (ms, 0: unknown)
--   refused  when the holder's lease ends
--   full     waiters
--   stale    nothing: it came past not_after, and nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS, OOM.
-- Cost: free or refused TIME, HMGET and, if granted, HSET, PEXPIREAT; granted again TIME, HMGET,
-- three HGET, HDEL, HSET; else a bounded number of calls, whatever the number of readers and
-- waiters.

-- @include constants
-- @include clock

-- Nobody there, or nobody who would let it in: the usual cases, without the machinery below.
local lock = redis.pcall('HMGET', KEYS[1], 'version', 'fence', 'writer', 'readers', 'waiters')
-- @include simple
if simple then
  local writer, readers = lock[3], lock[4]
  if not writer and not readers then
    local deadline = now + lease
    local life = deadline + GRACE + SLACK .. ''
    local done = redis.pcall(
      'HSET', KEYS[1], 'version', VERSION, 'writer', 'h' .. deadline .. stamp .. caller, 'fence', stamp, 'until', life
    )
    if type(done) ~= 'number' then
      return { err = string.match(done.err, ERROR) or done.err }
    end
    redis.call('PEXPIREAT', KEYS[1], life)
    return { now, 'granted', 0, us, deadline }
  elseif not waits and not (writer and string.sub(writer, 31) == caller) then
    local ends = tonumber(writer and string.sub(writer, 2, 14) or redis.call('HGET', KEYS[1], 'read_min')) or 0
    if ends > now then
      return { now, 'refused', 0, ends }
    end
  end
end

-- @include prelude
-- @include demand
-- @include hash
-- @include waiters
-- @include readers
-- @include pump
-- @include acquire

return answer(function()
  return acquire('w')
end)
