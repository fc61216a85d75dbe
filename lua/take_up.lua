-- Hands a held lock on: the holder's record becomes that of another acquisition, in place, with no
-- moment in between at which nobody holds. The token stays.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id, a new one        ARGV[4]  lease, ms
-- ARGV[5]  r or w, how it is held
-- ARGV[6]  id of the holder     ARGV[7]  token of the holder
--
-- Reply: status, now, more
--   granted   its id, token, deadline: the new acquisition holds (also when this very call had been
--             carried out before; then the record is written again). A revoked lease keeps its
--             deadline. A wait of the holder for an upgrade has ended
--   lost      no such holder: its lease is over, another has taken it up, the mode or the token is
--             another, or it is or was cached; nothing was done
--   stale     nothing: it came past not_after
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude

local not_after, lease, asked = integer_arg(2, 0, MAX_TIMESTAMP), integer_arg(4, 1, MAX_DURATION), integer_arg(7, 1, MAX_SAFE_INTEGER)
if #KEYS ~= 1 or #ARGV ~= 7 then
  return argument_error('count')
elseif not not_after then
  return argument_error('not_after')
elseif not is_id(ARGV[3]) or not is_id(ARGV[6]) then
  return argument_error('id')
elseif not lease then
  return argument_error('lease')
elseif ARGV[5] ~= 'r' and ARGV[5] ~= 'w' then
  return argument_error('mode')
elseif not asked then
  return argument_error('token')
elseif not_after > 0 and now_ms > not_after then
  return ok_reply('stale', 0)
end
local taker, how, holder = ARGV[3], ARGV[5], ARGV[6]
local names = { 'writer', 'readers', 'waiters', 'r:' .. holder, 'r:' .. taker, 'q:' .. taker, 'revoked', 'cached' }

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters

-- What an acquisition holds by this token and in this mode: state, deadline, a reader's index.
local function held(id)
  if how == 'w' then
    local writes, state, deadline, minted = current_writer()
    if writes == id and minted == asked then
      return state, deadline
    end
  else
    local alive, state, deadline, minted, index = find_reader(id)
    if alive and minted == asked then
      return state, deadline, index
    end
  end
end

-- Whether the lock knows the taker by anything: then its id is not a new one.
local function is_known()
  return get('r:' .. taker) or get('q:' .. taker) or current_writer() == taker
end

-- The pump ends the wait of an upgrader that reads no more.
local function rename(deadline, index)
  if how == 'w' then
    return set_writer(taker, 'h', deadline, asked)
  end
  put('r:' .. holder, false)
  put('r:' .. taker, encode_record('h', deadline, asked, index))
  put('i:' .. index, taker)
  extend_expiry_to(deadline)
end

return run(function()
  local load_error = load(names)
  if load_error then
    return load_error
  end
  local state, deadline, index = held(taker)
  if state and how == 'w' then
    set_writer(taker, state, deadline, asked) -- as it stands: this came before
  elseif state then
    put_reader(taker, state, deadline, asked, index)
  elseif not is_known() then
    state, deadline, index = held(holder)
    if state == 'h' or state == 'g' then
      deadline = deadline_after_renewal(deadline, asked, lease)
      rename(deadline, index)
    else
      state = nil
    end
  end
  finish(true)
  if state then
    return ok_reply('granted', has_more_work, taker, asked, deadline)
  end
  return ok_reply('lost', has_more_work)
end)
