-- Goes on with what another call has left over (its reply's `more`): lets those in whose turn it
-- is.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
--
-- Reply: now, pumped, more
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return refuse('count')
end
local names = { 'version', 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'read_min' }
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
  settle(true)
  return { now, 'pumped', more }
end)
