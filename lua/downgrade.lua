-- Turns the write of an acquisition into a read, with no moment in between at which it holds
-- nothing. The token stays.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  id
-- ARGV[3]  token of the write: that of its grant
-- ARGV[4]  lease, ms            ARGV[5]  k, to stay cached; a cached holder is in use without it
--
-- Reply: status, now, more
--   granted   its id, token, deadline, and with k the last token and what recalls it: it reads
--             (also when this very call had been carried out before; then the record is written
--             again)
--   lost      it does not hold with this token; nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include head
-- @include prelude

local asked, lease = whole(3, 1, MAX_SAFE_INTEGER), whole(4, 1, MAX_DURATION)
if #KEYS ~= 1 or (#ARGV ~= 4 and #ARGV ~= 5) then
  return refuse('count')
elseif not is_id(ARGV[2]) then
  return refuse('id')
elseif not asked then
  return refuse('token')
elseif not lease then
  return refuse('lease')
elseif ARGV[5] and ARGV[5] ~= 'k' then
  return refuse('flags')
end
local names = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'r:' .. ARGV[2], 'revoked', 'cached' }

-- @include hash
-- @include line
-- @include flush
-- @include waiters
-- @include readers
-- @include pump
-- @include recall
-- @include weaken

-- The state that a call without `k` leaves to a cached holder; and a claim.
local function in_use(state)
  if state == 'g' then
    return 'h'
  end
  return is_cached(state) and not ARGV[5] and 'b' or state
end

return answer(function()
  local strange = open(names)
  if strange then
    return strange
  end
  local id, wrote, deadline, held = writing()
  if id == ARGV[2] and held == asked then
    become_reader(id, in_use(wrote), claimed_until(deadline, held, lease), held)
  end
  local reads_on, state, until_then, its_token, index = reading(ARGV[2])
  if reads_on and its_token == asked then
    if state == 'g' then
      until_then = claimed_until(until_then, its_token, lease)
    end
    put_reader(ARGV[2], in_use(state), until_then, its_token, index) -- as it stands, if this came before
  end
  settle(true)
  local alive, now_is, ends, reads = reading(ARGV[2])
  if alive and reads == asked and ARGV[5] then
    return reply('granted', more, ARGV[2], asked, ends, number('fence'), recalled(now_is))
  elseif alive and reads == asked then
    return reply('granted', more, ARGV[2], asked, ends)
  end
  return reply('lost', more)
end)
