-- Reads the queue of a semaphore in one command, for the fast paths of contended calls.
--
-- Before it: `line`, `flag`, `limit`, `used` and `holders`, the parts of the line as texts;
-- `other_fields`, further fields to read. After it: `queue_values` has their values from the fifth
-- on.
local queue_values = redis.pcall('HMGET', KEYS[1], 'head', 'waiters', 'ticket', 'lapsed_clients', unpack(other_fields))
local head, waiters, last_ticket, lapsed = unpack(queue_values)
waiters, last_ticket = tonumber(waiters or 0), tonumber(last_ticket or 0)

-- Returns true if the line and the queue are valid, and no holder has expired. During a sweep the
-- lower bound of the holders' deadlines is 0. Without flag 2 the slow path does not read the queue.
local function is_queue_valid()
  return not queue_values.err and waiters and last_ticket and (not head) == (waiters == 0)
    and (flag >= '2' or not (head or lapsed or last_ticket > 0))
    and limit - MAX_PERMITS <= 0 and holders ~= '0' and sub(line, 32, 44) > now_ms_text
end

local function is_waiter_alive(id, last_seen, waiter_ttl)
  return last_seen + waiter_ttl > now_ms and not (lapsed and find(lapsed, sub(id, 1, 11), 1, true))
end

-- Returns the ticket of the first waiter if that waiter is alive and cannot be granted: the slow
-- path would grant and remove nothing. `waiter_record` is the waiter's record, as this call
-- leaves it.
local function blocked_head(id, waiter_record)
  local ticket, last_seen, waiter_ttl, permits =
    string.match(waiter_record or '', '^p %- %S+ (%d+) (%d+) (%d+) %d+ %d+ (%d+) ')
  if ticket and is_waiter_alive(id, last_seen, waiter_ttl) and permits - limit <= 0 and used + permits - limit > 0 then
    return ticket
  end
end
