-- Reads the queue of a lock in one command, for the fast paths of contended calls.
--
-- Before it: `other_fields`, further fields to read. After it: `queue_values` has their values from
-- the eleventh on, and `is_queue_valid` says whether the fields could be read and are numbers.
local queue_values = redis.pcall(
  'HMGET', KEYS[1], 'writer', 'read_min', 'upgrader', 'cached_readers', 'reader_phase', 'waiters', 'fair_writers',
  'lapsed_clients', 'writers_head', 'readers_head', unpack(other_fields)
)
local writer, read_min, upgrader, cached, phase, waiters, fair_count, lapsed, writers_head, readers_head = unpack(queue_values)
phase, waiters, fair_count = tonumber(phase or 0), tonumber(waiters or 0), tonumber(fair_count or 0)
local is_queue_valid = not queue_values.err and phase and waiters and fair_count and tonumber(read_min or 0)
