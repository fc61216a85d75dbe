-- Adds an acquisition to the queue, and records its polls.

local function touch_waiter(waiter)
  local terms_error = parse_queue_terms(request)
  if terms_error then
    return terms_error
  end
  waiter.last_seen, waiter.ttl, waiter.lease, waiter.window = now_ms, request.ttl, request.lease, request.window
  waiter.node, waiter.tag = request.node, request.tag
  save_waiter(waiter)
end

-- Returns true if the queue has no place for a new waiter. A full queue first loses the expired
-- waiters at its heads: granting drops none while a writer holds or an upgrader waits.
local function is_queue_full(mode)
  if request.max_waiters > 0 and number('waiters') >= request.max_waiters then
    for _, list_mode in ipairs(mode == 'p' and { 'p' } or { 'r', 'w' }) do
      first_alive(list_mode)
    end
  end
  return number('waiters') >= request.max_waiters
end

local function enqueue(mode)
  local terms_error = parse_queue_terms(request)
  if terms_error then
    return terms_error
  elseif request.ticket == 0 and is_queue_full(mode) then
    finish(true) -- a full memory does not stop the removal of expired waiters
    return ok_reply('queue_full', has_more_work, number('waiters'))
  end
  -- The ticket after MAX_SAFE_INTEGER would be the same number, so no waiter gets a ticket that it
  -- could not send back.
  local last_ticket = number('ticket')
  local ticket = request.ticket > 0 and math.min(request.ticket, last_ticket + MAX_TICKET_LEAD) or last_ticket + 1
  if ticket > last_ticket then
    put('ticket', ticket)
  end
  link({
    id = request.id,
    mode = mode,
    ticket = ticket,
    last_seen = now_ms,
    ttl = request.ttl,
    lease = request.lease,
    window = request.window,
    fairness = request.fairness,
    node = request.node,
    tag = request.tag,
    queued_at = now_ms,
  })
end
