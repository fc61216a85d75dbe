-- The head of an acquire. `simple`: the call is well formed and in time, and comes without a
-- ticket. What is not simple is for the machinery to judge.
--
-- Numbers are costly to turn into text: the token (`stamp`) and the time (`moment`) are cut out of
-- what TIME has said, and compared as text, for their length is fixed.
local line = redis.pcall('HGET', KEYS[1], 's')
-- @include clock
local stamp = clock[1] .. string.sub('00000' .. clock[2], -6)
local moment = string.sub(stamp, 1, 13)
local caller, lease, not_after = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[2])
local tries = #ARGV == 7
local simple = #KEYS == 1
  and (tries or #ARGV == 8)
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
  and (ARGV[5] == 'f' or ARGV[5] == 'r')
  and ARGV[6] == '1'
  and #ARGV[7] <= 8
  and string.find(ARGV[7], '^[%w_-]+$')
