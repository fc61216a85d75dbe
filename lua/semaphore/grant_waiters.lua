-- Continues the work that another call has left (`more` in its reply): grants permits to the next
-- waiters.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name
--
-- Reply: done, now, more
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 1 then
  return argument_error('number of keys or arguments')
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
  return ok_reply('done', has_more_work)
end)
