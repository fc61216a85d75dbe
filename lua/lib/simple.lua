-- `simple`: the call is well formed and in time, there is neither a queue nor an upgrader, and the clock is past the last token. What is
-- not simple, a malformed call or field among it, is for the machinery to judge.
local caller, lease, not_after, waits = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[2]), #ARGV == 11
local simple = #KEYS == 1
  and (waits or #ARGV == 5)
  and string.find(table.concat(ARGV, ' ', 2), waits and '^%d+ [%w_-]+ %d+ [fr] [1-9]%d* [1-9]%d* 0 %d+ [%w_-]+ [%w_-]+$' or '^%d+ [%w_-]+ %d+ [fr]$')
  and #caller >= 12
  and #caller <= 40
  and lease >= 1
  and lease <= LONGEST
  and (not_after == 0 or (not_after >= now and not_after <= NEVER))
  and (not waits or (#ARGV[6] <= 12 and #ARGV[7] <= 12 and #ARGV[9] <= 13 and #ARGV[10] <= 40 and #ARGV[11] <= 8))
  and (lock[1] == VERSION or (lock[1] == false and redis.call('EXISTS', KEYS[1]) == 0))
  and (tonumber(lock[2] or 0) or us) < us
  and not lock[7]
  and not lock[8]
  and not lock[9]
