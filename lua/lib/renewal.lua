-- The head of the renewals. `simple`: the call is well formed, of a lease that is the caller's own.
-- @include head
local caller, lease = tostring(ARGV[2]), tonumber(ARGV[3])
local sub, find = string.sub, string.find
local simple = #KEYS == 1
  and #ARGV == 3
  and #stamp == 16
  and line
  and #line > 30
  and lease
  and lease >= 1
  and lease <= LONGEST
  and lease % 1 == 0
