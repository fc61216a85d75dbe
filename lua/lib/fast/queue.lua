-- Reads the queue of a lock in one call, for the fast paths of contended calls.
--
-- Before it: `also`, further fields to read. After it: `queue` has their values from the eleventh
-- on, and `is_legible` says whether the fields could be read and the numbers are numbers.
local queue = redis.pcall(
  'HMGET', KEYS[1], 'writer', 'read_min', 'upgrader', 'cached', 'phase', 'waiters', 'fair', 'lapsed', 'writers_head',
  'readers_head', unpack(also)
)
local writer, soonest, upgrader, cached, phase, waiters, fair, lapsed, writers_head, readers_head = unpack(queue)
phase, waiters, fair = tonumber(phase or 0), tonumber(waiters or 0), tonumber(fair or 0)
local is_legible = not queue.err and phase and waiters and fair
