-- Tells whether an acquisition holds the lock, and how. Reads only.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
-- ARGV[3]  id
--
-- Reply: now, status, 0
--   writes  token, deadline
--   reads   token, deadline
--   absent  it does not hold: it never did, it waits, or its lease has ended
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS.
-- Cost: TIME and HMGET.

-- @include constants
-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 3 then
  return refuse('count')
elseif not is_id(ARGV[3]) then
  return refuse('id')
end
local lock = redis.pcall('HMGET', key, 'version', 'writer', 'r:' .. ARGV[3], 'forced')
local strange = foreign(lock)
if strange then
  return strange
end

return answer(function()
  if lock[2] then
    local _, deadline, token, id = parse(lock[2])
    if id == ARGV[3] and deadline > now then
      return { now, 'writes', 0, token, deadline }
    end
  end
  if lock[3] then
    local _, deadline, token = parse(lock[3])
    if deadline > now and token > (tonumber(lock[4] or 0) or malformed('forced')) then
      return { now, 'reads', 0, token, deadline }
    end
  end
  return { now, 'absent', 0 }
end)
