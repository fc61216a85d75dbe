-- The beginning of a renewal. `is_fast_path`: the call is well formed, apart from the mode or the
-- permits, and a sixth argument. `expected_token`: the token of the lease. `new_state`: the
-- holder's state after the call. A cached lease (renew_cached.lua) sets `cached_fields`, what else
-- changes, and `cached_reply`, the rest of its reply.
-- @include read_line
local caller, lease, expected_token = tostring(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local sub, find = string.sub, string.find
local is_fast_path = #KEYS == 1
  and (#ARGV == 5 or #ARGV == 6)
  and #now_us_text == 16
  and line
  and #line > 30
  and lease
  and lease >= 1
  and lease <= MAX_DURATION
  and lease % 1 == 0
local new_state, cached_fields, cached_reply = 'h', nil, ''
