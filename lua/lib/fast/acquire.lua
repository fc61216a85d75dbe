-- The head of an acquire. `simple`: the call is well formed and in time. The slow path judges any
-- other call.
-- @include fast/well_formed
local soft = argv[5] == 'ft' or argv[5] == 'rt' -- a try that waits for cached holders alone
local tries = given == 7 or soft
local simple = well_formed
  and (argv[5] == 'f' or argv[5] == 'r' or soft and given == 8)
  and argv[6] == '1'
  and (given < 9 or (#argv[9] < 16 and find(argv[9], '^[1-9]%d*$')))
-- The lock has no holder and no waiter, and the clock is past its last token.
local free = simple
  and given < 9
  and (line and find(line, '^2F%d+$') and #line == 31 and sub(line, 16) < now_us_text or not line and redis.pcall('EXISTS', KEYS[1]) == 0)
