-- Turns the write of an acquisition into a read with the same token, atomically: it holds the lock
-- all the time.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  id
-- ARGV[3]  token of the write's grant
-- ARGV[4]  lease, ms            ARGV[5]  k, to stay cached; without it a cached holder is in use
--
-- Reply: status, now, more
--   granted   the id, token, deadline, and with k the last token and who recalls the lease: it
--             reads (also if this call was carried out before; then the record is written again)
--   not_held  it does not hold with this token; nothing was changed
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude

local expected_token, lease = integer_arg(3, 1, MAX_SAFE_INTEGER), integer_arg(4, 1, MAX_DURATION)
if #KEYS ~= 1 or (#ARGV ~= 4 and #ARGV ~= 5) then
  return argument_error('number of keys or arguments')
elseif not is_id(ARGV[2]) then
  return argument_error('id')
elseif not expected_token then
  return argument_error('token')
elseif not lease then
  return argument_error('lease')
elseif ARGV[5] and ARGV[5] ~= 'k' then
  return argument_error('flags')
end
local needed_fields = {
  'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'r:' .. ARGV[2], 'revoked_up_to', 'cached_readers',
}

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters
-- @include recall
-- @include become_reader

-- Returns the state after this call: a grant is claimed, and without `k` a cached holder is in use.
local function in_use(state)
  if state == 'g' then
    return 'h'
  end
  return is_cached(state) and not ARGV[5] and 'b' or state
end

return run(function()
  local load_error = load(needed_fields)
  if load_error then
    return load_error
  end
  local id, writer_state, deadline, writer_token = current_writer()
  if id == ARGV[2] and writer_token == expected_token then
    become_reader(id, in_use(writer_state), deadline_after_renewal(deadline, writer_token, lease), writer_token)
  end
  local is_reading, state, read_deadline, reader_token, index = find_reader(ARGV[2])
  if is_reading and reader_token == expected_token then
    if state == 'g' then
      read_deadline = deadline_after_renewal(read_deadline, reader_token, lease)
    end
    put_reader(ARGV[2], in_use(state), read_deadline, reader_token, index) -- unchanged if the call is repeated
  end
  finish(true)
  local alive, new_state, new_deadline, new_token = find_reader(ARGV[2])
  if alive and new_token == expected_token and ARGV[5] then
    return ok_reply('granted', has_more_work, ARGV[2], expected_token, new_deadline, number('fence'), recall_mode(new_state))
  elseif alive and new_token == expected_token then
    return ok_reply('granted', has_more_work, ARGV[2], expected_token, new_deadline)
  end
  return ok_reply('not_held', has_more_work)
end)
