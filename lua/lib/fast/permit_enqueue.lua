-- The fast path of a semaphore's waiter: it joins the end of the queue, or its poll is recorded.
--
-- Before it: the queue (permit_queue.lua), with the fields `tail`, `q:<caller>` and `r:<caller>`.
--
-- The conditions, in this order: the call is well formed; the queue is valid, and no holder has
-- expired; the caller holds nothing; it waits, or it is new and the queue is not full; the key
-- lives long enough; the first waiter is alive and cannot be granted. If a condition does not hold,
-- or the server refuses the write, then nothing has been written and the slow path decides.
local window, ttl, max_waiters, node = string.match(argv[8], '^([1-9]%d*) ([1-9]%d*) (%d+) ([%w_-]+)$')
local tail, own_waiter, own_record = unpack(queue_values, 5)
local new_fields, records = nil, {} -- the records of waiters that this call writes
if not node or #window > 12 or #ttl > 12 or #max_waiters > 12 or #node > 40 or not is_queue_valid() or own_record then -- luacheck: ignore 542
  -- Malformed, an expired holder, or the caller holds.
elseif own_waiter then
  local links, ticket, permits, since =
    string.match(own_waiter, '^(p %S+ %S+) (%d+) %d+ %d+ %d+ %d+ (%d+) %S+ %S+ (%d+)$')
  if ticket and #ticket < 14 and head then
    records[caller] = table.concat({ links, ticket, now_ms_text, ttl, lease, window, permits, node, argv[7], since }, ' ')
    new_fields, last_ticket = { 'q:' .. caller, records[caller] }, ticket
  end
elseif arg_count == 8 and waiters < max_waiters + 0 and last_ticket < 10000000000000 and not tail == not head then
  local tail_record = tail and redis.call('HGET', KEYS[1], 'q:' .. tail) or ''
  local tail_start, tail_end = string.match(tail_record, '^(p %S+) %- (.+)$')
  last_ticket = last_ticket + 1
  if (not tail) == (not tail_start) then
    local permits = string.format('%.0f', wanted_permits)
    records[caller] = table.concat(
      { 'p', tail or '-', '-', last_ticket, now_ms_text, ttl, lease, window, permits, node, argv[7], now_ms_text }, ' '
    )
    new_fields = { 'q:' .. caller, records[caller], 'ticket', last_ticket, 'waiters', waiters + 1, 'tail', caller }
    if tail then
      records[tail] = tail_start .. ' ' .. caller .. ' ' .. tail_end
      new_fields[9], new_fields[10] = 'q:' .. tail, records[tail]
    else
      new_fields[9], new_fields[10] = 'head', caller
    end
  end
end
local stored_expiry = sub(line, 3, 15) + 0
if new_fields and now_ms + ttl + KEY_GRACE <= stored_expiry then
  local first = head or caller
  local head_ticket = blocked_head(first, records[first] or redis.call('HGET', KEYS[1], 'q:' .. first))
  if head_ticket then
    local queue_line = sub(line, 1, 44) .. (stored_expiry - now_ms > IDLE_KEY_TTL and 3 or 2) .. sub(line, 46)
    if queue_line ~= line then
      new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 's', queue_line
    end
    if type(redis.pcall('HSET', KEYS[1], unpack(new_fields))) == 'number' then
      return table.concat(
        { 'queued', now_ms_text, 0, last_ticket, math.max(last_ticket - head_ticket, 0), sub(line, 32, 44) }, ' '
      )
    end
  end
end
