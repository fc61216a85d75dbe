-- Returns whether an acquisition holds the lock, and in which mode. Reads only.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  id
--
-- Reply: status, now, 0
--   writes    token, deadline
--   reads     token, deadline
--   not_held  it does not hold: it never did, it waits, or its lease has expired
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS.
-- Cost: HGET and TIME; of one of several holders HGET or HMGET more.

-- @include constants
-- @include read_line
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return argument_error('number of keys or arguments')
elseif not is_id(ARGV[2]) then
  return argument_error('id')
end

-- @include field_cache
-- @include state_line

return run(function()
  local own_field = 'r:' .. ARGV[2]
  local load_error = load({ 'writer', own_field, 'forced_up_to' })
  if load_error then
    return load_error
  end
  if get('writer') then
    local _, deadline, token, id = decode_record(get('writer'))
    if id == ARGV[2] and deadline > now_ms then
      return ok_reply('writes', 0, token, deadline)
    end
  end
  if get(own_field) then
    local _, deadline, token = decode_record(get(own_field))
    if deadline > now_ms and token > number('forced_up_to') then
      return ok_reply('reads', 0, token, deadline)
    end
  end
  return ok_reply('not_held', 0)
end)
