-- Gives a part of a holder's permits back. It names what stays, and not what goes: so a call that
-- comes twice, or late, gives nothing back twice.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name    ARGV[2]  id                   ARGV[3]  permits that it keeps
--
-- Reply: status, now, more
--   kept   token, deadline, permits: so many it holds, and never more than before
--   lost   it does not hold
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include head
-- @include prelude

local keeps = whole(3, 1, MAX_PERMITS)
if #KEYS ~= 1 or #ARGV ~= 3 then
  return refuse('count')
elseif not is_id(ARGV[2]) then
  return refuse('id')
elseif not keeps then
  return refuse('permits')
end

-- @include hash
-- @include semaphore

return answer(function()
  local strange = open({ 'r:' .. ARGV[2] })
  if strange then
    return strange
  end
  local alive, state, deadline, token, index, permits = reading(ARGV[2])
  if alive then
    keeps = math.min(keeps, permits)
    keep_permits(ARGV[2], state, deadline, token, index, permits, keeps)
  end
  settle(true)
  if alive then
    return reply('kept', more, token, deadline, keeps)
  end
  return reply('lost', more)
end)
