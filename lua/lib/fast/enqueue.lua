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
  local list_prefix = mode == 'r' and 'readers_' or 'writers_'
  local other_fields = { 'ticket', list_prefix .. 'tail', 'q:' .. caller, 'r:' .. caller }
-- @include fast/read_queue
-- @include fast/first_waiter
  local last_ticket, tail, own_waiter, own_reader = unpack(queue_values, 11)
  last_ticket = tonumber(last_ticket or 0)

  -- The fields of a queue that the line has implied.
  local new_fields, is_known = {}, shape == 'Q' and digits_end == 31 and #line == 31
  if shape ~= 'Q' and digits_end > 44 and holder ~= caller then
    local queue_line, holder_record = '2Q' .. sub(line, 3, 31), 'h' .. line_deadline .. sub(line, 16, 31)
    if shape == 'S' then
      is_known, read_min = digits_end == #line and find(line, '^[0-3][1-9]', 45), line_deadline
      new_fields = { 's', queue_line, 'readers', holder, 'read_min', read_min }
    elseif sub(line, 45, 45) <= '1' and #holder >= 12 and #holder <= 40 and find(holder, '^[%w_-]+$') then
      is_known = true
      if shape == 'W' then
        writer = holder_record .. holder
        new_fields = { 's', queue_line, 'writer', writer }
      else
        read_min = line_deadline
        new_fields = { 's', queue_line, 'r:' .. holder, holder_record .. '0', 'i:0', holder, 'readers', '1', 'read_min', read_min }
      end
    end
  end

  local own_fairness, head = sub(argv[5], 1, 1), writers_head
  if mode == 'r' then
    head = readers_head
  end
  local ticket, new_record = nil, nil
  if not is_known or not last_ticket or own_reader or (writer and sub(writer, 31) == caller) then -- luacheck: ignore 542
    -- Malformed, or the caller holds.
  elseif own_waiter then
    local links, old_ticket, fairness, since =
      string.match(own_waiter, '^(%a %S+ %S+) (%d+) %d+ %d+ %d+ %d+ ([fr]) %S+ %S+ (%d+)$')
    if old_ticket and #old_ticket < 14 and head and sub(own_waiter, 1, 1) == mode then
      ticket, last_ticket = old_ticket, old_ticket + 0
      new_record = links .. ' ' .. ticket .. ' ' .. now_ms_text .. ' ' .. ttl .. ' ' .. lease .. ' ' .. window .. ' '
        .. fairness .. ' ' .. node .. ' ' .. argv[7] .. ' ' .. since
    end
  elseif mode == 'r' and cached and waiters == 0 and arg_count == 8 then
-- @include fast/acquire_beside_cached
  elseif arg_count == 8 and is_queue_valid and waiters < max_waiters + 0 and last_ticket < 10000000000000 then
    local tail_start, tail_end = nil, nil
    if tail then
      waiter_records[tail] = redis.call('HGET', KEYS[1], 'q:' .. tail) or ''
      tail_start, tail_end = string.match(waiter_records[tail], '^(%a %S+) %- (.+)$')
    end
    if not tail == not head and not tail == not tail_start then
      last_ticket = last_ticket + 1
      ticket = last_ticket .. ''
      new_record = mode .. ' ' .. (tail or '-') .. ' - ' .. ticket .. ' ' .. now_ms_text .. ' ' .. ttl .. ' ' .. lease .. ' '
        .. window .. ' ' .. own_fairness .. ' ' .. node .. ' ' .. argv[7] .. ' ' .. now_ms_text
      if mode == 'w' and own_fairness == 'f' then
        fair_count = fair_count + 1
        new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 'fair_writers', fair_count
      end
      new_fields = {
        'ticket', ticket, 'waiters', waiters + 1, list_prefix .. 'tail', caller,
        tail and 'q:' .. tail or list_prefix .. 'head', tail and tail_start .. ' ' .. caller .. ' ' .. tail_end or caller,
        unpack(new_fields),
      }
    end
  end

  if ticket and (mode == 'r' or not cached) and now_ms + ttl + KEY_GRACE <= sub(line, 3, 15) + 0 then
    waiter_records[caller] = new_record
    if mode == 'r' then
      readers_head = readers_head or caller
    else
      writers_head = writers_head or caller
    end
-- @include fast/queue_blocked
    local head_ticket = is_blocked
      and (mode == 'w' and writer_ticket or mode == 'r' and reader_ticket or select(2, first_waiter(head or caller)))
    if head_ticket and type(redis.pcall('HSET', KEYS[1], 'q:' .. caller, new_record, unpack(new_fields))) == 'number' then
      return 'queued ' .. now_ms_text .. ' 0 ' .. ticket .. ' ' .. math.max(last_ticket - head_ticket, 0) .. ' '
        .. (writer and sub(writer, 2, 14) or read_min)
    end
  end
end
