-- Changes the limit of a semaphore if the current one is the expected one. No holder loses permits:
-- if more are held than the new limit, nothing is granted until enough were released.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  the expected limit   ARGV[4]  the new limit
--
-- Reply: status, now, more
--   set             nothing: the semaphore has the new limit, perhaps since an earlier attempt of
--                   this call. A missing semaphore is created with it
--   limit_mismatch  the current limit, which is another one; nothing was changed
--   too_late        nothing: the call came after not_after, and changed nothing
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS, OOM.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude

local not_after, expected_limit, new_limit =
  integer_arg(2, 0, MAX_TIMESTAMP), integer_arg(3, 1, MAX_PERMITS), integer_arg(4, 1, MAX_PERMITS)
if #KEYS ~= 1 or #ARGV ~= 4 then
  return argument_error('number of keys or arguments')
elseif not not_after then
  return argument_error('not_after')
elseif not expected_limit or not new_limit then
  return argument_error('limit')
end

-- @include field_cache
-- @include semaphore_state

return run(function()
  local load_error = load({})
  if load_error then
    return load_error
  elseif not_after > 0 and now_ms > not_after then
    return ok_reply('too_late', 0)
  end
  local current_limit = shape ~= 'N' and number('limit') or expected_limit
  if current_limit ~= expected_limit and current_limit ~= new_limit then
    return ok_reply('limit_mismatch', 0, current_limit)
  end
  put('limit', new_limit)
  finish(false)
  return ok_reply('set', has_more_work)
end)
