-- The place of an acquisition in the queue: taking it, and telling that its waiter lives.

local function refresh(entry)
  local bad_place = read_place(demand)
  if bad_place then
    return bad_place
  end
  entry.seen, entry.ttl, entry.lease, entry.window = now, demand.ttl, demand.lease, demand.window
  entry.node, entry.tag = demand.node, demand.tag
  save(entry)
end

local function queue(mode)
  local bad_place = read_place(demand)
  if bad_place then
    return bad_place
  elseif demand.ticket == 0 and number('waiters') >= demand.limit then
    settle(false)
    return reply('full', more, number('waiters'))
  end
  -- From MAX_SAFE_INTEGER on, one more is the same number: so nobody is given a ticket that it may not
  -- come back with.
  local last = number('ticket')
  local ticket = demand.ticket > 0 and math.min(demand.ticket, last + MAX_TICKET_LEAD) or last + 1
  if ticket > last then
    put('ticket', ticket)
  end
  link({
    id = demand.id,
    mode = mode,
    ticket = ticket,
    seen = now,
    ttl = demand.ttl,
    lease = demand.lease,
    window = demand.window,
    fairness = demand.fairness,
    node = demand.node,
    tag = demand.tag,
    since = now,
  })
end
