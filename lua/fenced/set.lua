-- Writes a fenced value, unless a newer token or a later writer has written it.
--
-- KEYS[1]  the value
-- ARGV[1]  the server's name      ARGV[2]  name of the lock
-- ARGV[3]  token                  ARGV[4]  id of the writer
-- ARGV[5]  sequence: the number of this call of the writer
-- ARGV[6]  predecessor: id of the writer with the same token that this writer takes over from, or -
-- ARGV[7]  retention, ms: how long the token outlives a value that ends
-- ARGV[8]  time to live of the value, ms (0: no end)
-- ARGV[9]  any; existing: only over a value that is there
-- ARGV[10] the value
--
-- Reply: status, now, 0
--   written     the value is written, or a later call of this writer has written over it
--   stale       stored token: it is newer, and nothing was changed
--   taken_over  writer: this writer with the same token has written, and nothing was changed
--   not_found   there is no value to write over, and this call has not run before; nothing was
--               changed
--   other_lock  a list with the name of the value's lock; nothing was changed
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS, OOM.
-- Cost: TIME, HMGET, HSET; EXISTS if it is new; PEXPIREAT if the expiry changes.

-- @include constants
-- @include clock
-- @include prelude

local ARG_COUNT = 10
-- @include fenced_args
local ttl, mode = integer_arg(8, 0, MAX_DURATION), ARGV[9]
if not ttl then
  return argument_error('ttl')
elseif mode ~= 'any' and mode ~= 'existing' then
  return argument_error('mode')
end

-- @include fenced_value
-- @include fenced_writer

return run(function()
  local refused = load_line('lock') or refusal()
  if refused then
    return refused
  elseif mode == 'existing' and not has_value() and not has_run() then
    return ok_reply('not_found', 0)
  elseif is_overtaken() then
    rewrite_line()
  else
    local deadline = ttl > 0 and now_ms + ttl or NEVER
    local expiry = ttl > 0 and deadline + retention or NEVER
    write_value(expiry, deadline, ARGV[10])
  end
  return ok_reply('written', 0)
end)
