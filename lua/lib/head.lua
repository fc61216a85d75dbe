-- What every operation on a lock begins with: its state line, and the server's time.
local line = redis.pcall('HGET', KEYS[1], 's')
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) -- ms, for deadlines
