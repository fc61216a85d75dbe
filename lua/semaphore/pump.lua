-- Goes on with what another call has left over (its reply's `more`): lets those in whose turn it
-- is.
--
-- KEYS[1]  the semaphore
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

-- @include hash
-- @include semaphore

return answer(function()
  local strange = open({})
  if strange then
    return strange
  elseif shape ~= 'N' then
    settle(true)
  end
  return reply('pumped', more)
end)
