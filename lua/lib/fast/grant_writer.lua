-- Grants the lock to the first writer when the last holder is gone and no reader goes first. Sets
-- `new_fields`, `removed_fields` and `handoff`, and `new_expiry` if the key must live longer.
-- Leaves `new_fields` nil if the slow path must decide. It is apart from grant_readers.lua: one
-- path for both made a hand-off from writer to writer 1.4 times as expensive.
--
-- Before it: the queue (read_queue.lua); `stored_expiry`; the clock is past the last token. The
-- conditions, in this order: the writer is alive; `waiters` is the length of the lists.
local following, last_seen, waiter_ttl, window, fairness, node, tag = string.match(
  redis.call('HGET', KEYS[1], 'q:' .. writers_head) or '',
  '^w %- (%S+) %d+ (%d+) (%d+) %d+ (%d+) ([fr]) (%S+) (%S+) %d+$'
)
local client_id = sub(writers_head, 1, 11)
if following and last_seen + waiter_ttl > now_ms and not find(lapsed or '', client_id, 1, true) then
  local following_tail = following ~= '-'
    and string.match(redis.call('HGET', KEYS[1], 'q:' .. following) or '', '^w %S+( %S+ %d+ %d+ %d+ %d+ %d+ %a %S+ %S+ %d+)$')
  local deadline, waiters_left = now_ms + window .. '', waiters - 1
  if deadline + KEY_GRACE > stored_expiry then
    new_expiry = deadline + KEY_GRACE + EXPIRY_SLACK .. ''
  end
  if writer then
    removed_fields = {} -- the next writer's record replaces it
  end
  removed_fields[#removed_fields + 1] = 'q:' .. writers_head
  if (following == '-' or following_tail) and waiters_left >= (following_tail and 1 or 0)
    and (waiters_left == 0 or following_tail or readers_head)
  then
    new_fields = {
      's', '2Q' .. (new_expiry or sub(line, 3, 15)) .. now_us_text, 'writer', 'g' .. deadline .. now_us_text .. writers_head,
    }
    if following_tail then
      new_fields[5], new_fields[6], new_fields[7], new_fields[8] =
        'writers_head', following, 'q:' .. following, 'w -' .. following_tail
    else
      removed_fields[#removed_fields + 1], removed_fields[#removed_fields + 2] = 'writers_head', 'writers_tail'
    end
    local size = #new_fields
    if waiters_left == 0 then
      removed_fields[#removed_fields + 1], removed_fields[#removed_fields + 2] = 'waiters', 'fair_writers'
    else
      new_fields[size + 1], new_fields[size + 2] = 'waiters', waiters_left
      if fairness == 'f' then
        new_fields[size + 3], new_fields[size + 4] = 'fair_writers', fair_count - 1
      end
    end
    local message = {
      channel = '{' .. tag .. '}rwlease:' .. client_id,
      text = ' ' .. writers_head .. ' ' .. now_us_text .. ' ' .. deadline,
    }
    if node == ARGV[1] then
      message[1] = writers_head -- only this server has its subscription
    end
    handoff = { messages = { node ~= '-' and message or nil }, grant_count = 1, has_more_work = 0, undelivered = {} }
  end
end
