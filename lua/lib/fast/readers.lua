-- Lets readers in from the first on, at most MAX_GRANTS of them. Sets `set`, `gone` and `handed`, and
-- `life` if the key must live longer; leaves `set` nil if the slow path must decide.
--
-- Before it: the queue (queue.lua, rest.lua); `readers`, the number of readers that hold, and
-- `bound`, the lower bound of their deadlines; `ends`, the end of the key's life. No writer holds,
-- no upgrader waits, nobody is revoked, forced out or cached, and the clock is past the last token.
--
-- The conditions, in this order: the first writer lives; each reader that is let in, or keeps out
-- those behind it, lives; `waiters` counts both lists.
local at, text, count, index, last, longest = readers_head, nil, 0, readers, nil, 0
local granted, dropped, told = {}, {}, {}
local deadline, until_then, its_window = nil, nil, nil -- as number and text, for readers with this window
local is_right = true
if writers_head then
  local _, _, lives = first(writers_head)
  is_right = lives
end
while is_right and at ~= '-' do
  text = redis.call('HGET', KEYS[1], 'q:' .. at) or ''
  local behind, number, seen, lasts, window, fairness, node, tag =
    string.match(text, '^r %S+ (%S+) (%d+) (%d+) (%d+) %d+ (%d+) ([fr]) (%S+) (%S+) %d+$')
  if not behind or (count < MAX_GRANTS and not lives_on(at, seen, lasts)) then
    is_right = false
  elseif count == MAX_GRANTS or (writers_head and number + 0 > phase and not (fairness == 'r' and fair == 0)) then
    break
  else
    if window ~= its_window then
      deadline, its_window = now_ms + window, window
      until_then = deadline .. ''
    end
    local size = 4 * count
    last = string.format('%.0f', now_us_text + count)
    granted[size + 1], granted[size + 2] = 'r:' .. at, 'g' .. until_then .. last .. index
    granted[size + 3], granted[size + 4] = 'i:' .. index, at
    dropped[count + 1] = 'q:' .. at
    if not bound or deadline < bound then
      bound = deadline
    end
    if deadline > longest then
      longest = deadline
    end
    if node ~= '-' then
      local channel = '{' .. tag .. '}rwlease:' .. sub(at, 1, 11)
      local message = told[channel]
      if not message then
        message = { channel = channel, text = '' }
        told[channel], told[#told + 1] = message, message
      end
      message.text = message.text .. ' ' .. at .. ' ' .. last .. ' ' .. until_then
      if node == ARGV[1] then
        message[#message + 1] = at -- nobody else has its subscription
      end
    end
    at, index, count = behind, index + 1, count + 1
  end
end
local waiting = waiters - count
if is_right and count > 0 and waiting >= 0 and (waiting > 0) == (at ~= '-' or writers_head ~= false) then
  if longest + KEY_GRACE > ends then
    life = longest + KEY_GRACE + EXPIRY_SLACK .. ''
  end
  set = { 's', (life or sub(line, 3, 15)) .. last, unpack(granted) }
  for _, field in ipairs(dropped) do
    gone[#gone + 1] = field
  end
  local size = #set
  if waiting > 0 then
    set[2] = '2Q' .. set[2]
    set[size + 1], set[size + 2], set[size + 3], set[size + 4] = 'readers', index, 'read_min', bound
    set[size + 5], set[size + 6] = 'waiters', waiting
  else
    set[2] = '2S' .. set[2] .. bound .. ((life or ends) - now_ms > IDLE_KEY_TTL and 3 or 2) .. index
    gone[#gone + 1], gone[#gone + 2], gone[#gone + 3], gone[#gone + 4] = 'readers', 'read_min', 'waiters', 'fair'
  end
  size = #set
  if at ~= '-' then
    set[size + 1], set[size + 2] = 'readers_head', at
    set[size + 3], set[size + 4] = 'q:' .. at, 'r -' .. string.match(text, '^r %S+(.*)$')
  else
    gone[#gone + 1], gone[#gone + 2] = 'readers_head', 'readers_tail'
  end
  if readers <= LISTPACK_READERS and index > LISTPACK_READERS and not redis.call('HGET', KEYS[1], 'wide') then
    set[#set + 1], set[#set + 2] = 'wide', string.rep('-', 65)
  end
  handed = { told = told, count = count, more = count == MAX_GRANTS and waiting > 0 and 1 or 0, unheard = {} }
end
