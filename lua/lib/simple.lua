-- `simple`: the call is well formed and in time, nobody waits, and the clock is past the last
-- token. What is not simple, a malformed call or field among it, is for the machinery to judge.
--
-- Numbers are costly to turn into text: the token's (`stamp`) is put together from what TIME has
-- said, a moment's is made once.
local caller, lease, not_after, waits = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[2]), #ARGV == 11
local stamp = clock[1] .. string.sub('00000' .. clock[2], -6)
local simple = #KEYS == 1
  and not lock[5]
  and (waits or #ARGV == 5)
  and #caller >= 12
  and #caller <= 40
  and not string.find(caller, '[^%w_-]')
  and lease
  and lease >= 1
  and lease <= LONGEST
  and lease % 1 == 0
  and (not_after == 0 or (not_after and not_after >= now and not_after <= NEVER and not_after % 1 == 0))
  and (ARGV[5] == 'f' or ARGV[5] == 'r')
  and (lock[1] == VERSION or (lock[1] == false and redis.call('EXISTS', KEYS[1]) == 0))
  and (tonumber(lock[2] or 0) or us) < us
  and now >= PADDED
if simple and waits then
  simple = string.find(table.concat(ARGV, ' ', 6), '^[1-9]%d* [1-9]%d* 0 %d+ [%w_-]+ [%w_-]+$')
    and #ARGV[6] <= 12
    and #ARGV[7] <= 12
    and #ARGV[9] <= 13
    and #ARGV[10] <= 40
    and #ARGV[11] <= 8
end
