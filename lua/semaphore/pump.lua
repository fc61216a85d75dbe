-- Goes on with what another call has left over (its reply's `more`): lets those in whose turn it
-- is.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name
--
-- Reply: pumped, now, more
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 1 then
  return argument_error('count')
end

-- @include field_cache
-- @include semaphore_state

return run(function()
  local load_error = load({})
  if load_error then
    return load_error
  elseif shape ~= 'N' then
    finish(true)
  end
  return ok_reply('pumped', has_more_work)
end)
