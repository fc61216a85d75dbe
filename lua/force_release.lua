-- Takes the lock from all that hold it, at once. They may still believe that they hold: an overlap, which only the tokens can mend. A new
-- token is minted first, so that whatever is granted from here on is newer than anything the old holders can write.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
--
-- Reply: now, status, more
--   forced   the new token, the writer's owner (empty: none), readers that were cut off
--   free     nobody holds; nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls; `more` until all readers are swept away.

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
  local owner = writing()
  local readers = number('readers')
  if not owner and readers == 0 then
    settle(true)
    return { now, 'free', more }
  end
  local token = mint()
  if owner then
    end_write()
  end
  if readers > 0 then
    put('forced', token)
    put('read_min', 0)
    drop('sweep')
    blocked_by_readers(0)
  end
  settle(true)
  return { now, 'forced', more, token, owner or '', readers }
end)
