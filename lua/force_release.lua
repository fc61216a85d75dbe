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
-- @include read_line
-- @include prelude

local token_limit = integer_arg(2, 1, MAX_SAFE_INTEGER)
if #KEYS ~= 1 or #ARGV ~= 3 then
  return argument_error('count')
elseif not token_limit then
  return argument_error('token')
elseif not is_word(ARGV[3], 8) then
  return argument_error('tag')
end
local needed_fields = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'read_min', 'cached' }

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
  -- A token of the future would cut off those to come.
  token_limit = math.min(token_limit, number('fence'))
  local id, _, _, writer_token = current_writer()
  local ends_writer = id and writer_token <= token_limit
  local readers = number('readers')
  local ends_readers = readers > 0 and number('forced') < token_limit
  if not ends_writer and not ends_readers then
    finish(true)
    return ok_reply('free', has_more_work)
  end
  if ends_readers then
    put('forced', token_limit)
    put('read_min', 0)
    delete_fields('sweep')
    has_other_readers(0)
  end
  if not ends_writer and forced_out_count == 0 and not sweep_state() then
    finish(true)
    return ok_reply('free', has_more_work)
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
