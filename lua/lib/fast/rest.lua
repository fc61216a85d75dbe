-- Whether nobody's turn has come beside a queue (queue.lua): the condition that the fast paths of
-- contended calls have in common. It is apart, because each call makes these functions anew.

-- The entries of waiters, as the hash has them or as this call will write them.
local entries = {}
local function entry_of(id)
  entries[id] = entries[id] or redis.call('HGET', KEYS[1], 'q:' .. id) or ''
  return entries[id]
end

local function lives_on(id, seen, lasts)
  return seen + lasts > now_ms and not (lapsed and find(lapsed, sub(id, 1, 11), 1, true))
end

-- The ticket and the fairness of the first waiter of a list, and whether the waiter lives.
local function first(id)
  local number, seen, lasts, fairness = string.match(entry_of(id), '^%a %- %S+ (%d+) (%d+) (%d+) %d+ %d+ ([fr]) ')
  if number then
    return number + 0, fairness, lives_on(id, seen, lasts)
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
local function keeps_out(next_writer, next_reader, fair_writers)
  if not is_legible or upgrader then
    return false
  elseif writer then
    local _, numbers = find(writer, '^[ghb]%d+')
    return numbers and numbers >= 30 and sub(writer, 2, 14) > now_ms_text
  elseif cached or not soonest or #soonest ~= 13 or soonest <= now_ms_text or not next_writer then
    return false
  end
  local of_writer, _, lives = first(next_writer)
  if not lives then
    return false
  elseif not next_reader then
    return true, of_writer
  end
  local of_reader, fairness, reader_lives = first(next_reader)
  return reader_lives and of_reader > phase and not (fairness == 'r' and fair_writers == 0), of_writer, of_reader
end
