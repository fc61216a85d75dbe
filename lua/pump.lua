-- Goes on with what another call has left over (its reply's `more`): lets those in whose turn it
-- is.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name
--
-- Reply: pumped, now, more
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include head
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 1 then
  return refuse('count')
end
local names = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'read_min' }

-- @include hash
-- @include line
-- @include flush
-- @include waiters
-- @include readers
-- @include pump

return answer(function()
  local strange = open(names)
  if strange then
    return strange
  end
  settle(true)
  return reply('pumped', more)
end)
