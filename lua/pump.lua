-- Goes on with what another call has left over (its reply's `more`): lets those in whose turn it
-- is.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  hash tag of the slot's channels
--
-- Reply: pumped, now, more
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: where it is nobody's turn HGET, TIME, HMGET and one or two HGET; else a bounded number of
-- calls.

-- @include constants
-- @include head
local handed
-- @include fast/pump

-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return refuse('count')
elseif not is_word(ARGV[2], 8) then
  return refuse('tag')
end
local names = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'read_min', 'cached', 'recall' }

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
  if handed then
-- @include fast/unheard
  end
  settle(true, function()
    if get('recall') and not writing() then
      recall_readers(false)
    end
  end)
  tell_holders(ARGV[2], 'w')
  return reply('pumped', more)
end)
