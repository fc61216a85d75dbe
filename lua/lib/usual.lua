-- The head of the acquires of a queue. `usual`: the call is well formed as far as all of them are
-- alike, in time, and comes without a ticket.
--
-- Numbers are costly to turn into text: the token (`stamp`) and the time (`moment`) are cut out of
-- what TIME has said, and compared as text, for their length is fixed.
local line = redis.pcall('HGET', KEYS[1], 's')
-- @include clock
local stamp = clock[1] .. string.sub('00000' .. clock[2], -6)
local moment = string.sub(stamp, 1, 13)
local args = ARGV
local caller, lease, not_after = args[3], tonumber(args[4]), tonumber(args[2])
local usual = #KEYS == 1
  and (#args == 7 or #args == 8)
  and #stamp == 16
  and (not line or #line > 30)
  and #caller >= 12
  and #caller <= 40
  and not string.find(caller, '[^%w_-]')
  and lease
  and lease >= 1
  and lease <= LONGEST
  and lease % 1 == 0
  and (not_after == 0 or (not_after and not_after >= now and not_after <= NEVER and not_after % 1 == 0))
  and #args[7] <= 8
  and string.find(args[7], '^[%w_-]+$')
