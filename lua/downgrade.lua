-- Turns the write of an acquisition into a read, with no moment in between at which it holds
-- nothing. The token stays.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
-- ARGV[3]  id                   ARGV[4]  token of the write      ARGV[5]  lease, ms
--
-- Reply: now, status, more
--   granted   token, deadline: it reads (also when this very call had been carried out before)
--   lost      it does not hold with this token; nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include clock
-- @include prelude

local asked, lease = whole(4, 1, MOST_EXACT), whole(5, 1, LONGEST)
if #KEYS ~= 1 or #ARGV ~= 5 then
  return refuse('count')
elseif not is_id(ARGV[3]) then
  return refuse('id')
elseif not asked then
  return refuse('token')
elseif not lease then
  return refuse('lease')
end
local names = { 'version', 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'r:' .. ARGV[3], 'revoked' }
local lock = redis.pcall('HMGET', key, unpack(names))
local strange = foreign(lock)
if strange then
  return strange
end

-- @include hash
-- @include waiters
-- @include readers
-- @include pump

return answer(function()
  seed(names, lock)
  local id, _, deadline, held = writing()
  if id == ARGV[3] and held == asked then
    end_write()
    add_reader(id, 'h', claimed_until(deadline, held, lease), held)
  end
  settle(true)
  local alive, _, ends, reads = reading(ARGV[3])
  if alive and reads == asked then
    return { now, 'granted', more, asked, ends }
  end
  return { now, 'lost', more }
end)
