-- Checks whether the holders block all waiters of a queue (read_queue.lua). The fast paths of
-- contended calls share this condition. The functions have their own file because each call of a
-- script creates every function in it.

-- The records of waiters, as stored or as this call will write them.
local waiter_records = {}
local function waiter_record(id)
  waiter_records[id] = waiter_records[id] or redis.call('HGET', KEYS[1], 'q:' .. id) or ''
  return waiter_records[id]
end

local function is_waiter_alive(id, last_seen, waiter_ttl)
  return last_seen + waiter_ttl > now_ms and not (lapsed and find(lapsed, sub(id, 1, 11), 1, true))
end

-- Returns the ticket and the fairness of a list's first waiter, and whether that waiter is alive.
local function first_waiter(id)
  local ticket, last_seen, waiter_ttl, fairness = string.match(waiter_record(id), '^%a %- %S+ (%d+) (%d+) (%d+) %d+ %d+ ([fr]) ')
  if ticket then
    return ticket + 0, fairness, is_waiter_alive(id, last_seen, waiter_ttl)
  end
end

-- Returns true if no waiter can be granted: the slow path would grant and remove nothing. The
-- caller checks whether it would recall cached readers. `next_writer` and `next_reader` are the
-- first waiters, and `fair_writers` is the number of phase-fair writers, all as this call leaves
-- them. Beside readers, also returns the tickets of the first waiters.
--
-- The conditions, in this order: the queue is valid; no upgrader waits; the writer is alive and not
-- cached, or no reader is expired. Beside readers also: the first writer is alive; the first reader
-- is alive, joined after the last write ended, and does not go before writers.
local function is_queue_blocked(next_writer, next_reader, fair_writers)
  if not is_queue_valid or upgrader then
    return false
  elseif writer then
    local _, numbers_end = find(writer, '^[ghb]%d+')
    return numbers_end and numbers_end >= 30 and sub(writer, 2, 14) > now_ms_text
  elseif not read_min or #read_min ~= 13 or read_min <= now_ms_text or not next_writer then
    return false
  end
  local writer_ticket, _, writer_alive = first_waiter(next_writer)
  if not writer_alive then
    return false
  elseif not next_reader then
    return true, writer_ticket
  end
  local reader_ticket, fairness, reader_alive = first_waiter(next_reader)
  return reader_alive and reader_ticket > phase and not (fairness == 'r' and fair_writers == 0), writer_ticket, reader_ticket
end
