-- Refuses every further renewal to holders by a token up to this one: they are gone at the latest
-- of their deadlines. Nobody's lease is cut. A holder by a newer token is not concerned, so a call
-- that comes twice, or late, revokes nobody else.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  the token    ARGV[3]  hash tag of the slot's channels
--
-- Reply: status, now, more
--   revoked   the token up to which renewals are refused, readers (dead and newer ones are among
--             them), the writer's deadline (0: none)
--   free      none of them writes, and nobody reads; nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include head
-- @include prelude

local limit = whole(2, 1, MAX_SAFE_INTEGER)
if #KEYS ~= 1 or #ARGV ~= 3 then
  return refuse('count')
elseif not limit then
  return refuse('token')
elseif not is_word(ARGV[3], 8) then
  return refuse('tag')
end
local names = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'read_min', 'cached' }

-- @include hash
-- @include line
-- @include flush
-- @include waiters
-- @include readers
-- @include pump
-- @include recall

return answer(function()
  local strange = open(names)
  if strange then
    return strange
  end
  -- A token of the future would revoke those to come.
  limit = math.min(limit, number('fence'))
  local _, _, deadline, writes_by = writing()
  if writes_by and writes_by > limit then
    deadline = nil
  end
  local held = deadline or number('readers') > 0
  if held and number('revoked') < limit then
    put('revoked', limit)
  end
  settle(true, function()
    if deadline and writing() then
      recall_writer(true)
    elseif held then
      recall_readers(true)
    end
  end)
  tell_holders(ARGV[3], 'w')
  if held then
    return reply('revoked', more, limit, number('readers'), deadline or 0)
  end
  return reply('free', more)
end)
