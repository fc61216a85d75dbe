-- Lets the first writer in, when the last holder has gone: the readers that wait, if any do, are
-- not next. Sets `set`, `gone` and `handed`, and `life` if the key must live longer; leaves `set`
-- nil if the slow path must decide. It is apart from readers.lua: one path for both made a hand-off
-- from writer to writer 1.4 times as dear.
--
-- Before it: the queue (queue.lua); `ends`, the end of the key's life; the clock is past the last
-- token. The conditions, in this order: the writer lives; the number of waiters is that of the
-- lists.
local behind, seen, lasts, window, fairness, node, tag = string.match(
  redis.call('HGET', KEYS[1], 'q:' .. writers_head) or '',
  '^w %- (%S+) %d+ (%d+) (%d+) %d+ (%d+) ([fr]) (%S+) (%S+) %d+$'
)
local client = sub(writers_head, 1, 11)
if behind and seen + lasts > now_ms and not find(lapsed or '', client, 1, true) then
  local links = behind ~= '-'
    and string.match(redis.call('HGET', KEYS[1], 'q:' .. behind) or '', '^w %S+( %S+ %d+ %d+ %d+ %d+ %d+ %a %S+ %S+ %d+)$')
  local deadline, waiting = now_ms + window .. '', waiters - 1
  if deadline + KEY_GRACE > ends then
    life = deadline + KEY_GRACE + EXPIRY_SLACK .. ''
  end
  if writer then
    gone = {} -- its field has the next writer
  end
  gone[#gone + 1] = 'q:' .. writers_head
  if (behind == '-' or links) and waiting >= (links and 1 or 0) and (waiting == 0 or links or readers_head) then
    set = { 's', '2Q' .. (life or sub(line, 3, 15)) .. now_us_text, 'writer', 'g' .. deadline .. now_us_text .. writers_head }
    if links then
      set[5], set[6], set[7], set[8] = 'writers_head', behind, 'q:' .. behind, 'w -' .. links
    else
      gone[#gone + 1], gone[#gone + 2] = 'writers_head', 'writers_tail'
    end
    local size = #set
    if waiting == 0 then
      gone[#gone + 1], gone[#gone + 2] = 'waiters', 'fair'
    else
      set[size + 1], set[size + 2] = 'waiters', waiting
      if fairness == 'f' then
        set[size + 3], set[size + 4] = 'fair', fair - 1
      end
    end
    local message = { channel = '{' .. tag .. '}rwlease:' .. client, text = ' ' .. writers_head .. ' ' .. now_us_text .. ' ' .. deadline }
    if node == ARGV[1] then
      message[1] = writers_head -- nobody else has its subscription
    end
    handed = { told = { node ~= '-' and message or nil }, count = 1, more = 0, unheard = {} }
  end
end
