-- Functions for the waiters of a queue (read_queue.lua). They have their own file because each call
-- of a script creates every function in it.

local function is_waiter_alive(id, last_seen, waiter_ttl)
  return last_seen + waiter_ttl > now_ms and not (lapsed and find(lapsed, sub(id, 1, 11), 1, true))
end

-- Returns whether a list's first waiter is alive, its ticket and its fairness, or nothing if its
-- record is malformed. `waiter_records` has the records that the caller has read or will write.
local waiter_records = {}
local function first_waiter(id)
  local waiter_record = waiter_records[id] or redis.call('HGET', KEYS[1], 'q:' .. id) or ''
  local ticket, last_seen, waiter_ttl, fairness =
    string.match(waiter_record, '^%a %- %S+ (%d+) (%d+) (%d+) %d+ %d+ ([fr]) ')
  if ticket then
    return is_waiter_alive(id, last_seen, waiter_ttl), ticket + 0, fairness
  end
end
