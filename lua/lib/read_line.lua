-- The beginning of an operation on a lock: reads its state line and the server's time.
local line = redis.pcall('HGET', KEYS[1], 's')
-- @include clock
