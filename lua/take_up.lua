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
-- @include head
-- @include prelude

local not_after, lease, asked = whole(2, 0, MAX_TIMESTAMP), whole(4, 1, MAX_DURATION), whole(7, 1, MAX_SAFE_INTEGER)
if #KEYS ~= 1 or #ARGV ~= 7 then
  return refuse('count')
elseif not not_after then
  return refuse('not_after')
elseif not is_id(ARGV[3]) or not is_id(ARGV[6]) then
  return refuse('id')
elseif not lease then
  return refuse('lease')
elseif ARGV[5] ~= 'r' and ARGV[5] ~= 'w' then
  return refuse('mode')
elseif not asked then
  return refuse('token')
elseif not_after > 0 and now > not_after then
  return reply('stale', 0)
end
local taker, how, holder = ARGV[3], ARGV[5], ARGV[6]
local names = { 'writer', 'readers', 'waiters', 'r:' .. holder, 'r:' .. taker, 'q:' .. taker, 'revoked', 'cached' }

-- @include hash
-- @include line
-- @include flush
-- @include waiters
-- @include readers
-- @include pump

-- What an acquisition holds by this token and in this mode: state, deadline, a reader's index.
local function held(id)
  if how == 'w' then
    local writes, state, deadline, minted = writing()
    if writes == id and minted == asked then
      return state, deadline
    end
  else
    local alive, state, deadline, minted, index = reading(id)
    if alive and minted == asked then
      return state, deadline, index
    end
  end
end

-- Whether the lock knows the taker by anything: then its id is not a new one.
local function is_known()
  return get('r:' .. taker) or get('q:' .. taker) or writing() == taker
end

-- The pump ends the wait of an upgrader that reads no more.
local function rename(deadline, index)
  if how == 'w' then
    return write(taker, 'h', deadline, asked)
  end
  put('r:' .. holder, false)
  put('r:' .. taker, record('h', deadline, asked, index))
  put('i:' .. index, taker)
  cover(deadline)
end

return answer(function()
  local strange = open(names)
  if strange then
    return strange
  end
  local state, deadline, index = held(taker)
  if state and how == 'w' then
    write(taker, state, deadline, asked) -- as it stands: this came before
  elseif state then
    put_reader(taker, state, deadline, asked, index)
  elseif not is_known() then
    state, deadline, index = held(holder)
    if state == 'h' or state == 'g' then
      deadline = claimed_until(deadline, asked, lease)
      rename(deadline, index)
    else
      state = nil
    end
  end
  settle(true)
  if state then
    return reply('granted', more, taker, asked, deadline)
  end
  return reply('lost', more)
end)
