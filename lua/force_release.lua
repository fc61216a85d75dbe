-- Ends the leases of all holders whose token is at most the given one. These holders may continue
-- to work while other clients hold the lock. Only fencing tokens protect against that overlap. A
-- new token is minted first, so every later grant has a newer token than the old holders. Holders
-- with a newer token are not affected, so a repeated or late call ends no other lease.
--
-- Each holder that this call ends is notified on its client's channel: the writer, or the readers
-- that this call removes, at most 16. The calls that remove the other readers notify them, if they
-- have the tag: grant_waiters, acquire, upgrade, revoke.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  the token    ARGV[3]  hash tag of the slot's channels
--
-- Reply: status, now, more
--   forced      the new token, the writer's id (-: none), the number of readers before the call
--               (including expired and newer ones)
--   not_locked  there is no such holder. If there are more readers than one call checks, later
--               calls may still find that there was none
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls; `more` until all readers are removed.

-- @include constants
-- @include read_line
-- @include prelude

local token_limit = integer_arg(2, 1, MAX_SAFE_INTEGER)
if #KEYS ~= 1 or #ARGV ~= 3 then
  return argument_error('number of keys or arguments')
elseif not token_limit then
  return argument_error('token')
elseif not is_word(ARGV[3], 8) then
  return argument_error('tag')
end
local needed_fields = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'read_min', 'cached_readers' }

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
  -- A token of the future would end later holders.
  token_limit = math.min(token_limit, number('fence'))
  local id, _, _, writer_token = current_writer()
  local ends_writer = id and writer_token <= token_limit
  local readers = number('readers')
  local ends_readers = readers > 0 and number('forced_up_to') < token_limit
  if not ends_writer and not ends_readers then
    finish(true)
    return ok_reply('not_locked', has_more_work)
  end
  if ends_readers then
    put('forced_up_to', token_limit)
    put('read_min', 0)
    delete_fields('sweep')
    has_other_readers(0)
  end
  if not ends_writer and forced_out_count == 0 and not sweep_state() then
    finish(true)
    return ok_reply('not_locked', has_more_work)
  end
  local token = next_token()
  if ends_writer then
    start_reader_phase()
    force_released[#force_released + 1] = { id, writer_token }
  end
  finish(true)
  notify_holders(ARGV[3], 'w')
  return ok_reply('forced', has_more_work, token, ends_writer and id or '-', readers)
end)
