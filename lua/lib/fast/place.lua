-- The fast path of a call that waits: it takes the last place of its list (`mode`), or its poll
-- keeps the place that it has.
--
-- The conditions, in this order: the call and the line are well formed; the clock is past the last
-- token; the caller holds nothing; its entry is of this mode, or it is new and the queue is not
-- full; the key lives long enough; nobody's turn has come (rest.lua). If one of them does not hold,
-- or the server refuses the write, the slow path decides, and nothing has been written.
local window, ttl, limit, node = string.match(argv[8], '^([1-9]%d*) ([1-9]%d*) (%d+) ([%w_-]+)$')
local _, digits = find(line, '^2[WRSQ]%d+')
if node and #window <= 12 and #ttl <= 12 and #limit <= 12 and #node <= 40 and digits and sub(line, 16, 31) < now_us_text then
  local shape, bound, holder = sub(line, 2, 2), sub(line, 32, 44), sub(line, 46)
  local also = { 'ticket', 'writers_tail', 'readers_tail', 'q:' .. caller, 'r:' .. caller }
-- @include fast/queue
-- @include fast/rest
  local last, writers_tail, readers_tail, entry, reads = unpack(queue, 11)
  last = tonumber(last or 0)

  -- What the fields of a queue are that the line has told of.
  local set, is_known = {}, shape == 'Q' and digits == 31 and #line == 31
  if shape ~= 'Q' and digits > 44 and holder ~= caller then
    local record, readers = 'h' .. bound .. sub(line, 16, 31), nil
    local is_id = sub(line, 45, 45) <= '1' and #holder >= 12 and #holder <= 40 and find(holder, '^[%w_-]+$')
    set = { 's', '2Q' .. sub(line, 3, 31) }
    if shape == 'S' then
      readers = digits == #line and find(line, '^[0-3][1-9]', 45) and holder
    elseif is_id and shape == 'W' then
      writer = record .. holder
      set[3], set[4] = 'writer', writer
    elseif is_id then
      readers = '1'
      set[3], set[4], set[5], set[6] = 'r:' .. holder, record .. '0', 'i:0', holder
    end
    if readers then
      soonest = bound
      set[#set + 1], set[#set + 2], set[#set + 3], set[#set + 4] = 'readers', readers, 'read_min', bound
    end
    is_known = writer or readers
  end

  local list, head, tail = 'writers_', writers_head, writers_tail
  if mode == 'r' then
    list, head, tail = 'readers_', readers_head, readers_tail
  end
  local ticket, text = nil, nil
  if not is_known or not last or reads or (writer and sub(writer, 31) == caller) then -- luacheck: ignore 542
    -- Malformed, or the caller holds.
  elseif entry then
    local links, number, fairness, since = string.match(entry, '^(%a %S+ %S+) (%d+) %d+ %d+ %d+ %d+ ([fr]) %S+ %S+ (%d+)$')
    if number and #number < 14 and head and sub(entry, 1, 1) == mode then
      ticket = number
      text = table.concat({ links, number, now_ms_text, ttl, lease, window, fairness, node, argv[7], since }, ' ')
    end
  elseif given == 8 and is_legible and waiters < limit + 0 and last < 10000000000000 then
    local before, behind = nil, nil
    if tail then
      before, behind = string.match(entry_of(tail), '^(%a %S+) %- (.+)$')
    end
    if not tail == not head and not tail == not before then
      ticket = last + 1
      text = table.concat({ mode, tail or '-', '-', ticket, now_ms_text, ttl, lease, window, argv[5], node, argv[7], now_ms_text }, ' ')
      local at = #set
      set[at + 1], set[at + 2], set[at + 3], set[at + 4] = 'ticket', ticket, 'waiters', waiters + 1
      set[at + 5], set[at + 6] = list .. 'tail', caller
      if tail then
        set[at + 7], set[at + 8] = 'q:' .. tail, before .. ' ' .. caller .. ' ' .. behind
      else
        set[at + 7], set[at + 8] = list .. 'head', caller
      end
      if mode == 'w' and argv[5] == 'f' then
        fair = fair + 1
        set[at + 9], set[at + 10] = 'fair', fair
      end
    end
  end

  if ticket and now_ms + ttl + KEY_GRACE <= sub(line, 3, 15) + 0 then
    entries[caller] = text
    local waits, writers_first, readers_first =
      keeps_out(writers_head or (mode == 'w' and caller), readers_head or (mode == 'r' and caller), fair)
    local before = waits and (mode == 'w' and writers_first or mode == 'r' and readers_first or first(head or caller))
    if before then
      set[#set + 1], set[#set + 2] = 'q:' .. caller, text
      if type(redis.pcall('HSET', KEYS[1], unpack(set))) == 'number' then
        local ends = writer and sub(writer, 2, 14) or soonest
        return table.concat({ 'queued', now_ms_text, 0, ticket, math.max(ticket - before, 0), ends }, ' ')
      end
    end
  end
end
