-- The beginning of an acquire. `is_fast_path`: the call is well formed and in time. The slow path
-- handles any other call.
-- @include fast/args
local wants_cached = argv[5] == 'fk' or argv[5] == 'rk' -- a lease that is to be cached
local is_cached_try = argv[5] == 'ft' or argv[5] == 'rt' -- a try that waits for cached holders only
local is_try = arg_count == 7 or is_cached_try
local is_fast_path = is_well_formed
  and (argv[5] == 'f' or argv[5] == 'r' or is_cached_try and arg_count == 8 or wants_cached and arg_count > 7)
  and (argv[6] == '1' or wants_cached and find(argv[6], '^[1-9]%d*$') and #argv[6] <= 4 and argv[6] + 0 <= TOKEN_BLOCK)
  and (arg_count < 9 or (#argv[9] < 16 and find(argv[9], '^[1-9]%d*$')))
-- The lock has no holder and no waiter, and the clock is past its last token. The slow path grants
-- a lease that is to be cached.
local is_free = is_fast_path
  and not wants_cached
  and arg_count < 9
  and (
    line and find(line, '^2F%d+$') and #line == 31 and sub(line, 16) < now_us_text
    or not line and redis.pcall('EXISTS', KEYS[1]) == 0
  )
