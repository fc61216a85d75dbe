-- Gives one of the two keys back, if it is still the acquisition's.
--
-- KEYS[1]  the readers' key, or the writer's
-- ARGV[1]  the server's name        ARGV[2]  0
-- ARGV[3]  id
--
-- Reply: now, status, 0
--   released  it was the acquisition's, and is gone
--   absent    it is gone, or another's
-- Errors: WRONGTYPE, LOCKARGS.
-- Cost: TIME, GET, DEL.

-- @include clock

if #KEYS ~= 1 or #ARGV ~= 3 then
  return { err = 'LOCKARGS count' }
end
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' and held.err then
  return held
elseif held ~= ARGV[3] then
  return { now, 'absent', 0 }
end
redis.call('DEL', KEYS[1])
return { now, 'released', 0 }
