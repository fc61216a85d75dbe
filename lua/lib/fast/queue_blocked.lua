-- Checks whether the holders block all waiters: the slow path would grant and remove nothing. The
-- fast paths of contended calls share this condition. The caller checks whether the slow path would
-- recall cached readers.
--
-- Before it: the queue (read_queue.lua, first_waiter.lua), with `writers_head`, `readers_head` and
-- `fair_count` as this call leaves them. After it: `is_blocked`; beside readers also the tickets of
-- the first waiters.
--
-- The conditions, in this order: the queue is valid; no upgrader waits; the writer is alive and not
-- cached, or no reader is expired. Beside readers also: the first writer is alive; the first reader
-- is alive, joined after the last write ended, and does not go before writers.
local is_blocked, writer_ticket, reader_ticket = false
if not is_queue_valid or upgrader then -- luacheck: ignore 542
  -- The slow path decides.
elseif writer then
  local _, numbers_end = find(writer, '^[ghb]%d+')
  is_blocked = numbers_end and numbers_end >= 30 and sub(writer, 2, 14) > now_ms_text
elseif read_min and #read_min == 13 and read_min > now_ms_text and writers_head then
  is_blocked, writer_ticket = first_waiter(writers_head)
  if is_blocked and readers_head then
    local fairness
    is_blocked, reader_ticket, fairness = first_waiter(readers_head)
    is_blocked = is_blocked and reader_ticket > phase and not (fairness == 'r' and fair_count == 0)
  end
end
