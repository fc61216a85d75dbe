-- Raises the last fencing token of a lock that the acquisition holds. A quorum raises it to the
-- greatest token that its members granted, so that the next holder's majority grants a greater one.
-- The last token never falls.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  id
-- ARGV[3]  token
--
-- Reply: status, now, 0
--   raised    the last token is at least this one
--   ahead     the last token is lower, and this one is more than MAX_TOKEN_LEAD past the server's
--             clock: the clock of this server, or of the server that minted it, is wrong. Nothing
--             was changed
--   not_held  the acquisition does not hold, or is cached, and so owns the tokens. Nothing was
--             changed
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: HGET, TIME, HSET and at times PEXPIREAT; of one of several holders a few HGET more.

-- @include constants
-- @include read_line
-- @include prelude

local new_token = integer_arg(3, 1, MAX_SAFE_INTEGER)
if #KEYS ~= 1 or #ARGV ~= 3 then
  return argument_error('number of keys or arguments')
elseif not is_id(ARGV[2]) then
  return argument_error('id')
elseif not new_token then
  return argument_error('token')
end
local own_field = 'r:' .. ARGV[2]
local needed_fields = { 'writer', own_field, 'forced_up_to', 'cached_readers' }

-- @include field_cache
-- @include state_line
-- @include flush

local function holds()
  if get(own_field) then
    local state, deadline, token = decode_record(get(own_field))
    return deadline > now_ms and token > number('forced_up_to') and not string.find(state, '[kcb]')
  elseif get('writer') then
    local state, deadline, _, id = decode_record(get('writer'))
    return id == ARGV[2] and deadline > now_ms and not string.find(state, '[kcb]')
  end
end

return run(function()
  local load_error = load(needed_fields)
  if load_error then
    return load_error
  end
  if not holds() then
    return ok_reply('not_held', 0)
  elseif new_token > number('fence') and new_token > now_us + MAX_TOKEN_LEAD * 1000 then
    return ok_reply('ahead', 0)
  end
  local last_token = math.max(new_token, number('fence'))
  put('fence', last_token) -- even if unchanged, so that replicas can confirm it
  extend_expiry_to(math.ceil(last_token / 1000))
  flush(true)
  return ok_reply('raised', 0)
end)
