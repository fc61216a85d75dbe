-- Raises the last fencing token of a lock that its owner holds: what a quorum does with the greatest token that its members gave, so that
-- the next holder's majority gives a greater one. It never falls.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
-- ARGV[3]  owner                ARGV[4]  token
--
-- Reply: now, status, 0
--   raised  the last token is as great as this one, or greater
--   lost    it does not hold; nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: TIME, HMGET, HDEL and HSET.

-- @include constants
-- @include clock
-- @include prelude

local token = whole(4, 1, MOST_EXACT)
if #KEYS ~= 1 or #ARGV ~= 4 then
  return refuse('count')
elseif not is_owner(ARGV[3]) then
  return refuse('owner')
elseif not token then
  return refuse('token')
end
local lock = redis.pcall('HMGET', key, 'version', 'writer', 'r:' .. ARGV[3], 'forced', 'fence')
local strange = foreign(lock)
if strange then
  return strange
end

local function holds()
  if lock[2] then
    local _, deadline, _, owner = parse(lock[2])
    return owner == ARGV[3] and deadline > now
  elseif lock[3] then
    local _, deadline, minted = parse(lock[3])
    return deadline > now and minted > tonumber(lock[4] or 0)
  end
end

if not holds() then
  return { now, 'lost', 0 }
elseif tonumber(lock[5] or 0) < token then
  call('HDEL', key, '-') -- so that a full memory does not refuse what follows
  call('HSET', key, 'fence', format('%.0f', token))
end
return { now, 'raised', 0 }
