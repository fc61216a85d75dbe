-- The head of an acquire. `simple`: the call is well formed and in time, and comes without a
-- ticket. What is not simple is for the machinery to judge.
--
-- Numbers are costly to turn into text: the token (`stamp`) and the time (`moment`) are cut out of
-- what TIME has said, and compared as text, for their length is fixed.
local line = redis.pcall('HGET', KEYS[1], 's')
-- @include clock
local stamp = clock[1] .. string.sub('00000' .. clock[2], -6)
local moment = string.sub(stamp, 1, 13)
local args = ARGV
local caller, lease, not_after = args[3], tonumber(args[4]), tonumber(args[2])
local soft = args[5] == 'ft' or args[5] == 'rt' -- a try that waits for cached holders alone
local tries = #args == 7 or soft
local simple = #KEYS == 1
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
  and (args[5] == 'f' or args[5] == 'r' or soft and #args == 8)
  and args[6] == '1'
  and #args[7] <= 8
  and string.find(args[7], '^[%w_-]+$')
-- Nobody holds it or waits for it, and the clock is past its last token.
local free = simple
  and (line and string.find(line, '^2F%d+$') and #line == 31 and string.sub(line, 16) < stamp or not line and redis.pcall('EXISTS', KEYS[1]) == 0)
