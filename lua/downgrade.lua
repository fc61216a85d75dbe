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
-- @include read_line
-- @include prelude

local asked, lease = integer_arg(3, 1, MAX_SAFE_INTEGER), integer_arg(4, 1, MAX_DURATION)
if #KEYS ~= 1 or (#ARGV ~= 4 and #ARGV ~= 5) then
  return argument_error('count')
elseif not is_id(ARGV[2]) then
  return argument_error('id')
elseif not asked then
  return argument_error('token')
elseif not lease then
  return argument_error('lease')
elseif ARGV[5] and ARGV[5] ~= 'k' then
  return argument_error('flags')
end
local names = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'r:' .. ARGV[2], 'revoked', 'cached' }

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters
-- @include recall
-- @include become_reader

-- The state that a call without `k` leaves to a cached holder; and a claim.
local function in_use(state)
  if state == 'g' then
    return 'h'
  end
  return is_cached(state) and not ARGV[5] and 'b' or state
end

return run(function()
  local load_error = load(names)
  if load_error then
    return load_error
  end
  local id, wrote, deadline, held = current_writer()
  if id == ARGV[2] and held == asked then
    become_reader(id, in_use(wrote), deadline_after_renewal(deadline, held, lease), held)
  end
  local reads_on, state, until_then, its_token, index = find_reader(ARGV[2])
  if reads_on and its_token == asked then
    if state == 'g' then
      until_then = deadline_after_renewal(until_then, its_token, lease)
    end
    put_reader(ARGV[2], in_use(state), until_then, its_token, index) -- as it stands, if this came before
  end
  finish(true)
  local alive, now_is, ends, reads = find_reader(ARGV[2])
  if alive and reads == asked and ARGV[5] then
    return ok_reply('granted', has_more_work, ARGV[2], asked, ends, number('fence'), recall_mode(now_is))
  elseif alive and reads == asked then
    return ok_reply('granted', has_more_work, ARGV[2], asked, ends)
  end
  return ok_reply('lost', has_more_work)
end)
