-- Whether nobody's turn has come beside a queue (queue.lua): the condition that the fast paths of
-- contended calls have in common. It is apart, because each call makes these functions anew.

-- The entries of waiters, as the hash has them or as this call will write them.
local waiter_records = {}
local function waiter_record(id)
  waiter_records[id] = waiter_records[id] or redis.call('HGET', KEYS[1], 'q:' .. id) or ''
  return waiter_records[id]
end

local function is_waiter_alive(id, last_seen, waiter_ttl)
  return last_seen + waiter_ttl > now_ms and not (lapsed and find(lapsed, sub(id, 1, 11), 1, true))
end

-- The ticket and the fairness of the first waiter of a list, and whether the waiter lives.
local function first_waiter(id)
  local ticket, last_seen, waiter_ttl, fairness = string.match(waiter_record(id), '^%a %- %S+ (%d+) (%d+) (%d+) %d+ %d+ ([fr]) ')
  if ticket then
    return ticket + 0, fairness, is_waiter_alive(id, last_seen, waiter_ttl)
  end
end

-- Returns true if no waiter's turn has come: the slow path would make no grant, remove no waiter
-- and send no recall. `next_writer` and `next_reader` are the first waiters, and `fair_writers` is
-- the number of phase-fair writers, all as this call leaves them. Beside readers it also returns
-- the tickets of the first waiters.
--
-- The conditions, in this order: the queue is legible; no upgrader waits; the writer lives and is
-- not cached, or no reader is dead or cached. Beside readers also: the first writer lives; the
-- first reader lives; it came after the last write ended, and does not go before writers.
local function is_queue_blocked(next_writer, next_reader, fair_writers)
  if not is_queue_valid or upgrader then
    return false
  elseif writer then
    local _, numbers_end = find(writer, '^[ghb]%d+')
    return numbers_end and numbers_end >= 30 and sub(writer, 2, 14) > now_ms_text
  elseif cached or not read_min or #read_min ~= 13 or read_min <= now_ms_text or not next_writer then
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
