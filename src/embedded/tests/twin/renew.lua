-- The twin of lua/renew.lua, from its contract (at the top of that file) and with nothing but the
-- machinery: the usual path there is the only implementation otherwise.

-- @include constants
-- @include clock
-- @include prelude

local lease = whole(4, 1, LONGEST)
if #KEYS ~= 1 or #ARGV ~= 4 then
  return refuse('count')
elseif not is_id(ARGV[3]) then
  return refuse('id')
elseif not lease then
  return refuse('lease')
end
local mine = 'r:' .. ARGV[3]
local names = { 'version', 'writer', mine, 'waiters' }
local lock = redis.pcall('HMGET', key, unpack(names))
local strange = foreign(lock)
if strange then
  return strange
end

-- @include hash
-- @include waiters
-- @include readers
-- @include pump

-- Where the acquisition's record stands, if it holds; then the deadline, the token, and what
-- follows the token.
local function held()
  local alive, _, deadline, token, index = reading(ARGV[3])
  if alive ~= nil then
    return alive and mine, deadline, token, index
  elseif get('writer') then
    local _, ends, minted, id = parse(get('writer'))
    return id == ARGV[3] and ends > now and 'writer', ends, minted, id
  end
end

return answer(function()
  seed(names, lock)
  local field, deadline, token, rest = held()
  local reply = { now, 'lost', 0 }
  if field then
    deadline = claimed_until(deadline, token, lease)
    put(field, record('h', deadline, token, rest)) -- always, also when nothing changes
    cover(deadline)
    flush(true)
    reply = { now, token > number('revoked') and 'renewed' or 'revoked', 0, token, deadline }
  end
  -- A write blocks all that wait, and nobody else's end need be looked for where nobody waits.
  if lock[4] and field ~= 'writer' then
    settle(true)
    reply[3] = more
  end
  return reply
end)
