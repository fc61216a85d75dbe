-- Grants permits to the first waiters of a semaphore, at most MAX_GRANTS. Sets `new_fields`,
-- `removed_fields` and `handoff`, and `new_expiry` if the key must live longer. Leaves `new_fields`
-- nil if the slow path must decide.
--
-- Before it: the queue (permit_queue.lua), which is valid; no holder has expired, and the clock is
-- past the last token; `held` and `index`, the numbers of permits and of holders as the call leaves
-- them without grants (the place at `index` is to be empty or filled); `min_deadline`, the lower
-- bound of the holders' deadlines, or false; `removed_fields` and `moved_fields`, which the call
-- removes and sets in any case.
--
-- The conditions, in this order: each waiter that is granted is alive, and so is the one that can
-- not be granted; the limit is not below its permits; `waiters` counts the queue.
local next_waiter, record, grant_count, last_token, max_deadline = head or '-', nil, 0, sub(line, 16, 31), 0
local is_valid, messages = true, {}
while is_valid and next_waiter ~= '-' do
  record = redis.call('HGET', KEYS[1], 'q:' .. next_waiter) or ''
  local following, last_seen, waiter_ttl, window, requested, node, tag =
    string.match(record, '^p %S+ (%S+) %d+ (%d+) (%d+) %d+ (%d+) (%d+) (%S+) (%S+) %d+$')
  if not following then
    is_valid = false
  elseif grant_count == MAX_GRANTS then
    break
  elseif not is_waiter_alive(next_waiter, last_seen, waiter_ttl) or requested - limit > 0 then
    is_valid = false
  elseif held + requested - limit > 0 then
    break
  else
    local deadline = now_ms + window
    local deadline_text = deadline .. ''
    last_token = string.format('%.0f', now_us_text + grant_count)
    local size = #moved_fields
    moved_fields[size + 1], moved_fields[size + 2], moved_fields[size + 3], moved_fields[size + 4] =
      'r:' .. next_waiter, 'g' .. deadline_text .. last_token .. index .. ' ' .. requested, 'i:' .. index, next_waiter
    removed_fields[#removed_fields + 1] = 'q:' .. next_waiter
    if not min_deadline or deadline < min_deadline then
      min_deadline = deadline
    end
    max_deadline = math.max(max_deadline, deadline)
-- @include fast/grant_message
    next_waiter, held, index, grant_count = following, held + requested, index + 1, grant_count + 1
  end
end
local waiters_left = waiters - grant_count
if is_valid and min_deadline and waiters_left >= 0 and (waiters_left > 0) == (next_waiter ~= '-') then
  if max_deadline + KEY_GRACE > stored_expiry then
    new_expiry = max_deadline + KEY_GRACE + EXPIRY_SLACK .. ''
  end
  local key_expiry = new_expiry or sub(line, 3, 15)
  new_fields = {
    's',
    '2P' .. key_expiry .. last_token .. min_deadline .. (key_expiry - now_ms > IDLE_KEY_TTL and 3 or 2) .. limit .. ' '
      .. held .. ' ' .. index,
    unpack(moved_fields),
  }
  local size = #new_fields
  if grant_count == 0 then
    removed_fields[#removed_fields + 1] = 'i:' .. index
  elseif waiters_left > 0 then
    new_fields[size + 1], new_fields[size + 2], new_fields[size + 3], new_fields[size + 4] =
      'waiters', waiters_left, 'head', next_waiter
    new_fields[size + 5], new_fields[size + 6] = 'q:' .. next_waiter, 'p -' .. string.match(record, '^p %S+(.*)$')
  else
    size = #removed_fields
    removed_fields[size + 1], removed_fields[size + 2], removed_fields[size + 3] = 'waiters', 'head', 'tail'
  end
  if index > LISTPACK_READERS and index - grant_count <= LISTPACK_READERS and not redis.call('HGET', KEYS[1], 'pad') then
    new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 'pad', string.rep('-', 65)
  end
  handoff = {
    messages = messages,
    grant_count = grant_count,
    has_more_work = grant_count == MAX_GRANTS and waiters_left > 0 and 1 or 0,
    undelivered = {},
  }
end
