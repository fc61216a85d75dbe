-- What every operation on a lock begins with: its state line, and the server's time.
local line = redis.pcall('HGET', KEYS[1], 's')
-- @include clock
