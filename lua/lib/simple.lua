-- `simple`: the call is well formed and in time, and there is neither a queue nor an upgrader. What is not simple, a malformed call
-- among it, is for the machinery to judge.
local caller, lease, not_after, waits = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[2]), #ARGV > 5
local simple = #KEYS == 1
  and (#ARGV == 5 or (#ARGV == 11 and ARGV[8] == '0'))
  and #caller >= 12
  and #caller <= 40
  and not string.find(caller, '[^%w_-]')
  and lease
  and lease >= 1
  and lease <= LONGEST
  and lease % 1 == 0
  and (not_after == 0 or (not_after and not_after >= now))
  and (ARGV[5] == 'f' or ARGV[5] == 'r')
  and (lock[1] == VERSION or (lock[1] == false and redis.call('EXISTS', KEYS[1]) == 0))
  and not lock[7]
  and not lock[8]
  and not lock[9]
