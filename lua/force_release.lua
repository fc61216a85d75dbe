-- Takes the lock at once from all that hold it by a token up to this one. They may still believe
-- that they hold: an overlap, which only the tokens can mend. A new token is minted first, so that
-- whatever is granted from here on is newer than anything the old holders can write. A holder by a
-- newer token is not concerned, so a call that comes twice, or late, takes nothing from anybody
-- else.
--
-- Each holder that this call ends is told so by its client's channel: the writer, or the readers
-- that this call sweeps away, 16 at the most. Those that are left are told by the calls that sweep
-- them away, if these have the tag: pump, an acquire, an upgrade, revoke.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  the token    ARGV[3]  hash tag of the slot's channels
--
-- Reply: status, now, more
--   forced   the new token, the writer's id (-: none), the readers there were (dead and newer
--            ones are among them)
--   free     none of them holds. Among more readers than one call looks at there may be none
--            either, which later calls find out.
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls; `more` until all readers are swept away.

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
  -- A token of the future would cut off those to come.
  limit = math.min(limit, number('fence'))
  local id, _, _, writes_by = writing()
  local writes = id and writes_by <= limit
  local readers = number('readers')
  local reads = readers > 0 and number('forced') < limit
  if not writes and not reads then
    settle(true)
    return reply('free', more)
  end
  if reads then
    put('forced', limit)
    put('read_min', 0)
    drop('sweep')
    blocked_by_readers(0)
  end
  if not writes and cut_off == 0 and not sweeping() then
    settle(true)
    return reply('free', more)
  end
  local token = mint()
  if writes then
    end_write()
    evicted[#evicted + 1] = { id, writes_by }
  end
  settle(true)
  tell_holders(ARGV[3], 'w')
  return reply('forced', more, token, writes and id or '-', readers)
end)
