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
local ticket_text, new_fields, records = nil, nil, {} -- the records of waiters that this call writes
if not node or #window > 12 or #ttl > 12 or #max_waiters > 12 or #node > 40 or not is_queue_valid() or own_record then -- luacheck: ignore 542
  -- Malformed, an expired holder, or the caller holds.
elseif own_waiter then
  local links, ticket, permits, since =
    string.match(own_waiter, '^(p %S+ %S+) (%d+) %d+ %d+ %d+ %d+ (%d+) %S+ %S+ (%d+)$')
  if ticket and #ticket < 14 and head then
    ticket_text, last_ticket, new_fields = ticket, ticket + 0, {}
    records[caller] = links .. ' ' .. ticket .. ' ' .. now_ms_text .. ' ' .. ttl .. ' ' .. lease .. ' ' .. window .. ' '
      .. permits .. ' ' .. node .. ' ' .. argv[7] .. ' ' .. since
  end
elseif arg_count == 8 and waiters < max_waiters + 0 and last_ticket < 10000000000000 and not tail == not head then
  local tail_record = tail and redis.call('HGET', KEYS[1], 'q:' .. tail) or ''
  local tail_start, tail_end = string.match(tail_record, '^(p %S+) %- (.+)$')
  if (not tail) == (not tail_start) then
    last_ticket = last_ticket + 1
    ticket_text = last_ticket .. ''
    records[caller] = 'p ' .. (tail or '-') .. ' - ' .. ticket_text .. ' ' .. now_ms_text .. ' ' .. ttl .. ' ' .. lease .. ' '
      .. window .. ' ' .. string.format('%.0f', wanted_permits) .. ' ' .. node .. ' ' .. argv[7] .. ' ' .. now_ms_text
    if tail then
      records[tail] = tail_start .. ' ' .. caller .. ' ' .. tail_end
    end
    new_fields = {
      'ticket', ticket_text, 'waiters', waiters + 1, 'tail', caller,
      tail and 'q:' .. tail or 'head', tail and records[tail] or caller,
    }
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
    if type(redis.pcall('HSET', KEYS[1], 'q:' .. caller, records[caller], unpack(new_fields))) == 'number' then
      return 'queued ' .. now_ms_text .. ' 0 ' .. ticket_text .. ' ' .. math.max(last_ticket - head_ticket, 0) .. ' '
        .. sub(line, 32, 44)
    end
  end
end
