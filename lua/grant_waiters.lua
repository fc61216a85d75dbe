-- Continues the work that another call has left (`more` in its reply): grants the lock to the next
-- waiters.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  hash tag of the slot's channels
--
-- Reply: done, now, more
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: if no waiter can be granted HGET, TIME, HMGET and one or two HGET; otherwise a bounded
-- number of calls.

-- @include constants
-- @include read_line
local handoff
-- @include fast/grant_waiters

-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return argument_error('number of keys or arguments')
elseif not is_word(ARGV[2], 8) then
  return argument_error('tag')
end
local needed_fields = {
  'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'read_min', 'cached_readers', 'recall_cursor',
}

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters
-- @include recall

return run(function()
  local load_error = load(needed_fields)
  if load_error then
    return load_error
  end
  if handoff then
-- @include fast/revert_grants
  end
  finish(true, function()
    if get('recall_cursor') and not current_writer() then
      recall_readers(false)
    end
  end)
  notify_holders(ARGV[2], 'w')
  return ok_reply('done', has_more_work)
end)
