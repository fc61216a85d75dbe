local GRACE = 10000 -- ms that a lock's key outlives the last deadline: covers the skew of two servers' clocks
local SLACK = 10000 -- ms that a key's life is set too long, so that most calls need not set it
local KEEP = 60000 -- ms that the key of an idle lock lives at the most: what is longer, a release lowers
local LONGEST = 1000000000000 -- ms, the longest lease
local NEVER = 9999999999999 -- ms, the last moment that a record has room for
local BLOCK = 1024 -- tokens that a cached write takes at once, at the most
local FEW = 8 -- readers in a listpack; with more, WIDE makes the hash a table, whose look-ups cost the same at any size
local ERROR = '%u%u%u+ .*' -- an error's own code and text: old servers put the place in the script before it
