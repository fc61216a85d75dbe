-- The beginning of all acquires. `is_well_formed`: the arguments that they have in common are well
-- formed, and the call is in time. Numbers are checked as text, which costs less.
local line = redis.pcall('HGET', KEYS[1], 's')
-- @include clock
local argv, sub, find = ARGV, string.sub, string.find
local arg_count, caller, lease, not_after = #argv, argv[3], argv[4], argv[2]
local is_well_formed = #KEYS == 1
  and arg_count >= 7
  and arg_count <= 9
  and #now_us_text == 16
  and (not line or #line > 30)
  and #caller >= 12
  and #caller <= 40
  and find(caller, '^[%w_-]+$')
  and #lease <= 12
  and find(lease, '^[1-9]%d*$')
  and (not_after == '0' or (not_after >= now_ms_text and #not_after == 13 and find(not_after, '^%d+$')))
  and #argv[7] <= 8
  and find(argv[7], '^[%w_-]+$')
