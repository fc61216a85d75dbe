-- Turns the write of an acquisition into a read, with no moment in between at which it holds
-- nothing. The token stays.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  id
-- ARGV[3]  token of the write   ARGV[4]  lease, ms
--
-- Reply: status, now, more
--   granted   token, deadline: it reads (also when this very call had been carried out before; then
--             the record is written again)
--   lost      it does not hold with this token; nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include head
-- @include prelude

local asked, lease = whole(3, 1, MOST_EXACT), whole(4, 1, LONGEST)
if #KEYS ~= 1 or #ARGV ~= 4 then
  return refuse('count')
elseif not is_id(ARGV[2]) then
  return refuse('id')
elseif not asked then
  return refuse('token')
elseif not lease then
  return refuse('lease')
end
local names = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'r:' .. ARGV[2], 'revoked' }

-- @include hash
-- @include line
-- @include flush
-- @include waiters
-- @include readers
-- @include pump

return answer(function()
  local strange = open(names)
  if strange then
    return strange
  end
  local id, _, deadline, held = writing()
  if id == ARGV[2] and held == asked then
    end_write()
    add_reader(id, 'h', claimed_until(deadline, held, lease), held)
  end
  local reads_on, state, until_then, its_token, index = reading(ARGV[2])
  if reads_on and its_token == asked then
    if state == 'g' then
      until_then = claimed_until(until_then, its_token, lease)
      cover(until_then)
    end
    put('r:' .. ARGV[2], record('h', until_then, its_token, index)) -- as it stands, if this came before
  end
  settle(true)
  local alive, _, ends, reads = reading(ARGV[2])
  if alive and reads == asked then
    return reply('granted', more, asked, ends)
  end
  return reply('lost', more)
end)
