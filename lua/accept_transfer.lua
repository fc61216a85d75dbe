-- Transfers a held lock: the holder's record becomes the record of another acquisition, in place.
-- The lock is held all the time, and the token stays.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id, a new one        ARGV[4]  lease, ms
-- ARGV[5]  r or w, how it is held
-- ARGV[6]  id of the holder     ARGV[7]  token of the holder
--
-- Reply: status, now, more
--   granted   the id, token, deadline: the new acquisition holds (also if this call was carried out
--             before; then the record is written again). A revoked lease keeps its deadline. If the
--             old holder waited for an upgrade, that wait has ended
--   not_held  there is no such holder: its lease has expired, another acquisition has accepted the
--             transfer, it has another mode or token, or it is or was cached; nothing was changed
--   too_late  nothing: the call came after not_after
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude

local not_after, lease, expected_token =
  integer_arg(2, 0, MAX_TIMESTAMP), integer_arg(4, 1, MAX_DURATION), integer_arg(7, 1, MAX_SAFE_INTEGER)
if #KEYS ~= 1 or #ARGV ~= 7 then
  return argument_error('number of keys or arguments')
elseif not not_after then
  return argument_error('not_after')
elseif not is_id(ARGV[3]) or not is_id(ARGV[6]) then
  return argument_error('id')
elseif not lease then
  return argument_error('lease')
elseif ARGV[5] ~= 'r' and ARGV[5] ~= 'w' then
  return argument_error('mode')
elseif not expected_token then
  return argument_error('token')
elseif not_after > 0 and now_ms > not_after then
  return ok_reply('too_late', 0)
end
local new_holder, expected_mode, old_holder = ARGV[3], ARGV[5], ARGV[6]
local needed_fields = {
  'writer', 'readers', 'waiters', 'r:' .. old_holder, 'r:' .. new_holder, 'q:' .. new_holder, 'revoked_up_to', 'cached_readers',
}

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters

-- Returns the lease of an acquisition with this token and mode: state, deadline, a reader's index.
local function find_lease(id)
  if expected_mode == 'w' then
    local writer_id, state, deadline, token = current_writer()
    if writer_id == id and token == expected_token then
      return state, deadline
    end
  else
    local alive, state, deadline, token, index = find_reader(id)
    if alive and token == expected_token then
      return state, deadline, index
    end
  end
end

-- Returns true if the lock has a record of the new holder: then its id is not a new one.
local function is_known()
  return get('r:' .. new_holder) or get('q:' .. new_holder) or current_writer() == new_holder
end

-- Replaces the old holder. If it waited for an upgrade, `finish` ends the wait, as it no longer
-- reads.
local function rename(deadline, index)
  if expected_mode == 'w' then
    return set_writer(new_holder, 'h', deadline, expected_token)
  end
  put('r:' .. old_holder, false)
  put('r:' .. new_holder, encode_record('h', deadline, expected_token, index))
  put('i:' .. index, new_holder)
  extend_expiry_to(deadline)
end

return run(function()
  local load_error = load(needed_fields)
  if load_error then
    return load_error
  end
  local state, deadline, index = find_lease(new_holder)
  if state and expected_mode == 'w' then
    set_writer(new_holder, state, deadline, expected_token) -- unchanged: this call was carried out before
  elseif state then
    put_reader(new_holder, state, deadline, expected_token, index)
  elseif not is_known() then
    state, deadline, index = find_lease(old_holder)
    if state == 'h' or state == 'g' then
      deadline = deadline_after_renewal(deadline, expected_token, lease)
      rename(deadline, index)
    else
      state = nil
    end
  end
  finish(true)
  if state then
    return ok_reply('granted', has_more_work, new_holder, expected_token, deadline)
  end
  return ok_reply('not_held', has_more_work)
end)
