-- Releases some of a holder's permits. The call names the permits to keep, so a repeated or late
-- call releases nothing twice.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name    ARGV[2]  id                   ARGV[3]  permits to keep
--
-- Reply: status, now, more
--   kept      token, deadline, permits that it now holds: never more than before
--   not_held  it does not hold
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude

local kept_permits = integer_arg(3, 1, MAX_PERMITS)
if #KEYS ~= 1 or #ARGV ~= 3 then
  return argument_error('number of keys or arguments')
elseif not is_id(ARGV[2]) then
  return argument_error('id')
elseif not kept_permits then
  return argument_error('permits')
end

-- @include field_cache
-- @include semaphore_state

return run(function()
  local load_error = load({ 'r:' .. ARGV[2] })
  if load_error then
    return load_error
  end
  local alive, state, deadline, token, index, permits = find_reader(ARGV[2])
  if alive then
    kept_permits = math.min(kept_permits, permits)
    set_permits(ARGV[2], state, deadline, token, index, permits, kept_permits)
  end
  finish(true)
  if alive then
    return ok_reply('kept', has_more_work, token, deadline, kept_permits)
  end
  return ok_reply('not_held', has_more_work)
end)
