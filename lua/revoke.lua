-- Refuses every further renewal to those that hold now: the lock is free at the latest of their deadlines. Nobody's lease is cut.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
--
-- Reply: now, status, more
--   revoked   the token up to which renewals are refused, readers, the writer's deadline (0: none)
--   free      nobody holds; nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return refuse('count')
end
local names = { 'version', 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'read_min', 'fence' }
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
  local _, _, deadline = writing()
  local held = deadline or number('readers') > 0
  local token = number('fence')
  if held and number('revoked') ~= token then
    put('revoked', token)
  end
  settle(true)
  if held then
    return { now, 'revoked', more, token, number('readers'), deadline or 0 }
  end
  return { now, 'free', more }
end)
