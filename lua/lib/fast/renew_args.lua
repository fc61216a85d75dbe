-- The beginning of a renewal. `is_fast_path`: the call is well formed, apart from the mode or the
-- permits. `expected_token`: the token of the lease.
-- @include read_line
local caller, lease, expected_token = tostring(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local sub, find = string.sub, string.find
local is_fast_path = #KEYS == 1
  and #ARGV == 5
  and #now_us_text == 16
  and line
  and #line > 30
  and lease
  and lease >= 1
  and lease <= MAX_DURATION
  and lease % 1 == 0
