-- Raises the token of a fenced value to the writer's, so that older writers are refused from now
-- on, and returns the value.
--
-- KEYS[1]  the value
-- ARGV[1]  the server's name      ARGV[2]  name of the lock
-- ARGV[3]  token                  ARGV[4]  id of the writer
-- ARGV[5]  sequence               ARGV[6]  predecessor, or -
-- ARGV[7]  retention, ms: how long the token is kept if there is no value
--
-- Reply: status, now, 0
--   value       a list: token, value
--   no_value    a list: token
--   stale, taken_over, other_lock  as in `fenced/set`
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS, OOM.
-- Cost: TIME, HMGET, HSET; EXISTS if it is new; PEXPIREAT if the expiry changes.

-- @include constants
-- @include clock
-- @include prelude

local ARG_COUNT = 7
-- @include fenced_args
-- @include fenced_value
-- @include fenced_writer

return run(function()
  local refused = load_line('value') or refusal()
  if refused then
    return refused
  elseif is_overtaken() then
    rewrite_line()
    return value_reply()
  end
  local kept_until = now_ms + retention
  local expiry = stored_line and math.max(kept_until, key_expiry) or kept_until
  write_value(expiry, value_deadline)
  stored_token = token
  return value_reply()
end)
