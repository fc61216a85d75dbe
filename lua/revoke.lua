-- Forbids all further renewals to holders whose token is at most the given one, so they are gone at
-- the latest of their deadlines. No lease is shortened. Holders with a newer token are not
-- affected, so a repeated or late call revokes no other lease.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  the token    ARGV[3]  hash tag of the slot's channels
--
-- Reply: status, now, more
--   revoked     the token up to which renewals are forbidden, readers (including expired and newer
--               ones), the writer's deadline (0: none)
--   not_locked  there is no such writer, and no reader; nothing was changed
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude

local token_limit = integer_arg(2, 1, MAX_SAFE_INTEGER)
if #KEYS ~= 1 or #ARGV ~= 3 then
  return argument_error('number of keys or arguments')
elseif not token_limit then
  return argument_error('token')
elseif not is_word(ARGV[3], 8) then
  return argument_error('tag')
end
local needed_fields = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'read_min', 'cached_readers' }

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters
-- @include recall

return run(function()
  local load_error = load(needed_fields)
  if load_error then
    return load_error
  end
  -- A token of the future would revoke later holders.
  token_limit = math.min(token_limit, number('fence'))
  local _, _, writer_deadline, writer_token = current_writer()
  if writer_token and writer_token > token_limit then
    writer_deadline = nil
  end
  local is_held = writer_deadline or number('readers') > 0
  if is_held and number('revoked_up_to') < token_limit then
    put('revoked_up_to', token_limit)
  end
  finish(true, function()
    if writer_deadline and current_writer() then
      recall_writer(true)
    elseif is_held then
      recall_readers(true)
    end
  end)
  notify_holders(ARGV[3], 'w')
  if is_held then
    return ok_reply('revoked', has_more_work, token_limit, number('readers'), writer_deadline or 0)
  end
  return ok_reply('not_locked', has_more_work)
end)
