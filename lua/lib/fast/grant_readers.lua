-- Grants the lock to the first readers of the queue, at most MAX_GRANTS. Sets `new_fields`,
-- `removed_fields` and `handoff`, and `new_expiry` if the key must live longer. Leaves `new_fields`
-- nil if the slow path must decide.
--
-- Before it: the queue (read_queue.lua, first_waiter.lua); `readers`, the number of readers that
-- hold, and `min_deadline`, the lower bound of their deadlines; `stored_expiry`. No writer holds,
-- no upgrader waits, no holder is revoked or forced out, and the clock is past the last token.
--
-- The conditions, in this order: the first writer is alive; so is each reader that is granted, and
-- the one that stops the batch; `waiters` counts both lists.
local next_waiter, record, grant_count, index, last_token, max_deadline = readers_head, nil, 0, readers, nil, 0
local reader_fields, removed_waiters, messages = {}, {}, {}
local deadline, deadline_text, current_window = nil, nil, nil -- for readers with this claim window
local is_valid = true
if writers_head then
  is_valid = first_waiter(writers_head)
end
while is_valid and next_waiter ~= '-' do
  record = redis.call('HGET', KEYS[1], 'q:' .. next_waiter) or ''
  local following, ticket, last_seen, waiter_ttl, window, fairness, node, tag =
    string.match(record, '^r %S+ (%S+) (%d+) (%d+) (%d+) %d+ (%d+) ([fr]) (%S+) (%S+) %d+$')
  if not following or (grant_count < MAX_GRANTS and not is_waiter_alive(next_waiter, last_seen, waiter_ttl)) then
    is_valid = false
  elseif grant_count == MAX_GRANTS or (writers_head and ticket + 0 > phase and not (fairness == 'r' and fair_count == 0)) then
    break
  else
    if window ~= current_window then
      deadline, current_window = now_ms + window, window
      deadline_text = deadline .. ''
    end
    local size = 4 * grant_count
    last_token = string.format('%.0f', now_us_text + grant_count)
    reader_fields[size + 1], reader_fields[size + 2] = 'r:' .. next_waiter, 'g' .. deadline_text .. last_token .. index
    reader_fields[size + 3], reader_fields[size + 4] = 'i:' .. index, next_waiter
    removed_waiters[grant_count + 1] = 'q:' .. next_waiter
    if not min_deadline or deadline < min_deadline then
      min_deadline = deadline
    end
    if deadline > max_deadline then
      max_deadline = deadline
    end
-- @include fast/grant_message
    next_waiter, index, grant_count = following, index + 1, grant_count + 1
  end
end
local waiters_left = waiters - grant_count
if is_valid and grant_count > 0 and waiters_left >= 0 and (waiters_left > 0) == (next_waiter ~= '-' or writers_head ~= false) then
  if max_deadline + KEY_GRACE > stored_expiry then
    new_expiry = max_deadline + KEY_GRACE + EXPIRY_SLACK .. ''
  end
  new_fields = { 's', (new_expiry or sub(line, 3, 15)) .. last_token, unpack(reader_fields) }
  for _, field in ipairs(removed_waiters) do
    removed_fields[#removed_fields + 1] = field
  end
  local size = #new_fields
  if waiters_left > 0 or cached then
    new_fields[2] = '2Q' .. new_fields[2]
    new_fields[size + 1], new_fields[size + 2], new_fields[size + 3], new_fields[size + 4] =
      'readers', index, 'read_min', min_deadline
    if waiters_left > 0 then
      new_fields[size + 5], new_fields[size + 6] = 'waiters', waiters_left
    else
      removed_fields[#removed_fields + 1], removed_fields[#removed_fields + 2] = 'waiters', 'fair_writers'
    end
  else
    new_fields[2] = '2S' .. new_fields[2] .. min_deadline
      .. ((new_expiry or stored_expiry) - now_ms > IDLE_KEY_TTL and 3 or 2) .. index
    removed_fields[#removed_fields + 1], removed_fields[#removed_fields + 2],
      removed_fields[#removed_fields + 3], removed_fields[#removed_fields + 4] = 'readers', 'read_min', 'waiters', 'fair_writers'
  end
  size = #new_fields
  if next_waiter ~= '-' then
    new_fields[size + 1], new_fields[size + 2] = 'readers_head', next_waiter
    new_fields[size + 3], new_fields[size + 4] = 'q:' .. next_waiter, 'r -' .. string.match(record, '^r %S+(.*)$')
  else
    removed_fields[#removed_fields + 1], removed_fields[#removed_fields + 2] = 'readers_head', 'readers_tail'
  end
  if readers <= LISTPACK_READERS and index > LISTPACK_READERS and not redis.call('HGET', KEYS[1], 'pad') then
    new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 'pad', string.rep('-', 65)
  end
  handoff = {
    messages = messages,
    grant_count = grant_count,
    has_more_work = grant_count == MAX_GRANTS and waiters_left > 0 and 1 or 0,
    undelivered = {},
  }
end
