-- Raises the last fencing token of a lock that this acquisition holds: what a quorum does with the
-- greatest token that its members gave, so that the next holder's majority gives a greater one. It
-- never falls.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
-- ARGV[3]  id                   ARGV[4]  token
--
-- Reply: now, status, 0
--   raised  the last token is as great as this one, or greater
--   ahead   the last token is less than this one, and this one is more than AHEAD past this
--           server's clock: the server that minted it has a wrong clock, or this one has. Nothing
--           was done
--   lost    it does not hold; nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: TIME, HMGET, HDEL, HSET, at times PEXPIREAT, and three HGET.

-- @include constants
-- @include clock
-- @include prelude

local token = whole(4, 1, MOST_EXACT)
if #KEYS ~= 1 or #ARGV ~= 4 then
  return refuse('count')
elseif not is_id(ARGV[3]) then
  return refuse('id')
elseif not token then
  return refuse('token')
end
local mine = 'r:' .. ARGV[3]
local names = { 'version', 'writer', mine, 'forced', 'fence', 'until' }
local lock = redis.pcall('HMGET', key, unpack(names))
local strange = foreign(lock)
if strange then
  return strange
end

-- @include hash

local function holds()
  if get(mine) then
    local _, deadline, minted = parse(get(mine))
    return deadline > now and minted > number('forced')
  elseif get('writer') then
    local _, deadline, _, id = parse(get('writer'))
    return id == ARGV[3] and deadline > now
  end
end

return answer(function()
  seed(names, lock)
  if not holds() then
    return { now, 'lost', 0 }
  elseif number('fence') < token then
    if token > us + AHEAD * 1000 then
      return { now, 'ahead', 0 }
    end
    put('fence', token)
    cover(math.ceil(token / 1000))
    flush(true)
  end
  return { now, 'raised', 0 }
end)
