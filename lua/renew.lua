-- Makes a lease longer, never shorter; for one that was granted out of the queue it is also the
-- claim.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
-- ARGV[3]  id                   ARGV[4]  lease, ms
--
-- Reply: now, status, more
--   renewed   token, deadline
--   revoked   token, deadline: the lease stands, and will not be made longer (a grant is claimed
--             all the same)
--   lost      it does not hold
-- The holder's record is written in any case, also with the deadline that it has: replicas confirm
-- only what is written.
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: of a write or with no queue TIME, HMGET, HDEL, HSET and at times PEXPIREAT; else a bounded
-- number of calls.

-- @include constants
-- @include clock

local caller, lease = tostring(ARGV[3]), tonumber(ARGV[4])
local mine = 'r:' .. caller
local lock = redis.pcall('HMGET', KEYS[1], 'version', 'writer', mine, 'until', 'revoked', 'forced', 'waiters')
local reply
if lock[1] == VERSION and #KEYS == 1 and #ARGV == 4 and lease and lease >= 1 and lease <= LONGEST and lease % 1 == 0 and now >= PADDED then
  local field, text = mine, lock[3]
  if not text and lock[2] and string.sub(lock[2], 31) == caller then
    field, text = 'writer', lock[2]
  end
  local deadline, token = tonumber(string.sub(text or '', 2, 14)), tonumber(string.sub(text or '', 15, 30))
  local revoked, forced = tonumber(lock[5] or 0), tonumber(field == mine and lock[6] or 0)
  if deadline and token and revoked and forced and deadline > now and token > forced then
    local status = 'revoked'
    if token > revoked then
      status, deadline = 'renewed', math.max(deadline, now + lease)
    end
    -- Written even if nothing changes, so that replicas can confirm it.
    local renewed, life = 'h' .. deadline .. string.sub(text, 15), deadline + GRACE
    redis.call('HDEL', KEYS[1], '-') -- so that a full memory does not refuse what follows
    if life > (tonumber(lock[4]) or 0) then
      life = life + SLACK .. ''
      redis.call('HSET', KEYS[1], field, renewed, 'until', life)
      redis.call('PEXPIREAT', KEYS[1], life)
    else
      redis.call('HSET', KEYS[1], field, renewed)
    end
    reply = { now, status, 0, token, deadline }
    if not lock[7] or field == 'writer' then
      return reply -- it blocks nobody, or all that wait
    end
  end
end

-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 4 then
  return refuse('count')
elseif not is_id(ARGV[3]) then
  return refuse('id')
elseif not whole(4, 1, LONGEST) then
  return refuse('lease')
end
local strange = foreign(lock)
if strange then
  return strange
end

-- @include hash
-- @include waiters
-- @include readers
-- @include pump

return answer(function()
  if not reply then
    reading(ARGV[3])
    number('revoked')
    reply = { now, 'lost', 0 }
  end
  if lock[7] then
    settle(true)
    reply[3] = more
  end
  return reply
end)
