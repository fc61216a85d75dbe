-- Deletes a fenced value, and keeps its token, so that older writers stay refused.
--
-- KEYS[1]  the value
-- ARGV[1]  the server's name      ARGV[2]  name of the lock
-- ARGV[3]  token                  ARGV[4]  id of the writer
-- ARGV[5]  sequence               ARGV[6]  predecessor, or -
-- ARGV[7]  retention, ms: how long the token is kept
--
-- Reply: status, now, 0
--   written     there is no value, or a later call of this writer has written one
--   stale, taken_over, other_lock  as in `fenced/set`
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: TIME, HMGET, HSET, two HDEL, PEXPIREAT; EXISTS if there is no key. An overtaken call: TIME,
-- HMGET, HDEL, HSET.

-- @include constants
-- @include clock
-- @include prelude

local ARG_COUNT = 7
-- @include fenced_args
-- @include fenced_value
-- @include fenced_writer

return run(function()
  local refused = load_line('lock') or refusal()
  if refused then
    return refused
  end
  call('HDEL', key, '-') -- after a write the server does not check its memory
  if is_overtaken() then
    rewrite_line()
  else
    write_value(now_ms + retention, 0)
    call('HDEL', key, 'value')
  end
  return ok_reply('written', 0)
end)
