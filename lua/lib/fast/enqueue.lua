-- The fast path of a waiter: it joins the end of the list of `mode`, or its poll is recorded. A
-- read beside cached readers is granted if the queue is empty (acquire_beside_cached.lua).
--
-- The conditions, in this order: the call and the line are well formed; the clock is past the last
-- token; the caller holds nothing; it waits in this mode, or it is new and the queue is not full;
-- the key lives long enough; no waiter can be granted (queue_blocked.lua); the caller recalls no
-- cached reader. If a condition does not hold, or the server refuses the write, then nothing has
-- been written and the slow path decides.
local window, ttl, max_waiters, node = string.match(argv[8], '^([1-9]%d*) ([1-9]%d*) (%d+) ([%w_-]+)$')
local _, digits_end = find(line, '^2[WRSQ]%d+')
if node and #window <= 12 and #ttl <= 12 and #max_waiters <= 12 and #node <= 40
  and digits_end and sub(line, 16, 31) < now_us_text then
  local shape, line_deadline, holder = sub(line, 2, 2), sub(line, 32, 44), sub(line, 46)
  local other_fields = { 'ticket', 'writers_tail', 'readers_tail', 'q:' .. caller, 'r:' .. caller, 'readers', 'recall_cursor' }
-- @include fast/read_queue
-- @include fast/queue_blocked
  local last_ticket, writers_tail, readers_tail, own_waiter, own_reader, reader_count, recall = unpack(queue_values, 11)
  last_ticket = tonumber(last_ticket or 0)

  -- The fields of a queue that the line has implied.
  local new_fields, is_known = {}, shape == 'Q' and digits_end == 31 and #line == 31
  if shape ~= 'Q' and digits_end > 44 and holder ~= caller then
    local holder_record, readers = 'h' .. line_deadline .. sub(line, 16, 31), nil
    local has_valid_id = sub(line, 45, 45) <= '1' and #holder >= 12 and #holder <= 40 and find(holder, '^[%w_-]+$')
    new_fields = { 's', '2Q' .. sub(line, 3, 31) }
    if shape == 'S' then
      readers = digits_end == #line and find(line, '^[0-3][1-9]', 45) and holder
    elseif has_valid_id and shape == 'W' then
      writer = holder_record .. holder
      new_fields[3], new_fields[4] = 'writer', writer
    elseif has_valid_id then
      readers = '1'
      new_fields[3], new_fields[4], new_fields[5], new_fields[6] = 'r:' .. holder, holder_record .. '0', 'i:0', holder
    end
    if readers then
      read_min = line_deadline
      new_fields[#new_fields + 1], new_fields[#new_fields + 2], new_fields[#new_fields + 3], new_fields[#new_fields + 4] =
        'readers', readers, 'read_min', line_deadline
    end
    is_known = writer or readers
  end

  local own_fairness, list_prefix, head, tail = sub(argv[5], 1, 1), 'writers_', writers_head, writers_tail
  if mode == 'r' then
    list_prefix, head, tail = 'readers_', readers_head, readers_tail
  end
  local ticket, new_record = nil, nil
  if not is_known or not last_ticket or own_reader or (writer and sub(writer, 31) == caller) then -- luacheck: ignore 542
    -- Malformed, or the caller holds.
  elseif own_waiter then
    local links, old_ticket, fairness, since =
      string.match(own_waiter, '^(%a %S+ %S+) (%d+) %d+ %d+ %d+ %d+ ([fr]) %S+ %S+ (%d+)$')
    if old_ticket and #old_ticket < 14 and head and sub(own_waiter, 1, 1) == mode then
      ticket = old_ticket
      new_record = table.concat({ links, old_ticket, now_ms_text, ttl, lease, window, fairness, node, argv[7], since }, ' ')
    end
  elseif mode == 'r' and cached and waiters == 0 and arg_count == 8 then
-- @include fast/acquire_beside_cached
  elseif arg_count == 8 and is_queue_valid and waiters < max_waiters + 0 and last_ticket < 10000000000000 then
    local tail_start, tail_end = nil, nil
    if tail then
      tail_start, tail_end = string.match(waiter_record(tail), '^(%a %S+) %- (.+)$')
    end
    if not tail == not head and not tail == not tail_start then
      ticket = last_ticket + 1
      new_record = table.concat(
        { mode, tail or '-', '-', ticket, now_ms_text, ttl, lease, window, own_fairness, node, argv[7], now_ms_text }, ' '
      )
      local size = #new_fields
      new_fields[size + 1], new_fields[size + 2], new_fields[size + 3], new_fields[size + 4] =
        'ticket', ticket, 'waiters', waiters + 1
      new_fields[size + 5], new_fields[size + 6] = list_prefix .. 'tail', caller
      if tail then
        new_fields[size + 7], new_fields[size + 8] = 'q:' .. tail, tail_start .. ' ' .. caller .. ' ' .. tail_end
      else
        new_fields[size + 7], new_fields[size + 8] = list_prefix .. 'head', caller
      end
      if mode == 'w' and own_fairness == 'f' then
        fair_count = fair_count + 1
        new_fields[size + 9], new_fields[size + 10] = 'fair_writers', fair_count
      end
    end
  end

  if ticket and (mode == 'r' or not cached) and now_ms + ttl + KEY_GRACE <= sub(line, 3, 15) + 0 then
    waiter_records[caller] = new_record
    local is_blocked, writer_ticket, reader_ticket =
      is_queue_blocked(writers_head or (mode == 'w' and caller), readers_head or (mode == 'r' and caller), fair_count)
    local head_ticket = is_blocked
      and (mode == 'w' and writer_ticket or mode == 'r' and reader_ticket or first_waiter(head or caller))
    if head_ticket then
      new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 'q:' .. caller, new_record
      if type(redis.pcall('HSET', KEYS[1], unpack(new_fields))) == 'number' then
        local holder_deadline = writer and sub(writer, 2, 14) or read_min
        return table.concat({ 'queued', now_ms_text, 0, ticket, math.max(ticket - head_ticket, 0), holder_deadline }, ' ')
      end
    end
  end
end
