-- Grants the lock to those whose turn it is: to the first writer if `mode` is 'w', else to the
-- readers from the first on, at most GRANTS of them. Sets `set`, `gone` and `handed`, and `life` if
-- the key must live longer; leaves `set` nil if the slow path must decide.
--
-- Before it: the queue (queue.lua), `readers`, the number of readers that hold on, and `bound`,
-- the lower bound of their deadlines. Nobody else holds, no upgrader waits, nobody is revoked, forced
-- out or cached if readers are next, and the clock is past the last token.
--
-- The conditions, in this order: the first writer lives, if readers are next; each waiter that is
-- let in, or keeps out those behind it, lives; the number of waiters is that of the lists.
local at, most, other = readers_head, GRANTS, writers_head
local is_right = mode == 'w' or not writers_head or select(3, first(writers_head))
if mode == 'w' then
  at, most, other = writers_head, 1, readers_head
end
local pattern = '^' .. mode .. ' %S+( (%S+) (%d+) (%d+) (%d+) %d+ (%d+) ([fr]) (%S+) (%S+) %d+)$'
local count, index, last, longest, left_fair = 0, readers, nil, 0, fair
local granted, dropped, told, behind_them = {}, {}, {}, nil
while is_right and at ~= '-' do
  local rest, behind, number, seen, lasts, window, fairness, node, tag = string.match(entry_of(at), pattern)
  behind_them = rest
  if not rest or (count < most and not lives_on(at, seen, lasts)) then
    is_right = false
  elseif count == most or (mode == 'r' and writers_head and number + 0 > phase and not (fairness == 'r' and fair == 0)) then
    break
  else
    local deadline = now + window
    last = count == 0 and stamp or string.format('%.0f', stamp + count)
    local size = #granted
    if mode == 'w' then
      granted[1], granted[2] = 'writer', 'g' .. deadline .. last .. at
      left_fair = fair - (fairness == 'f' and 1 or 0)
    else
      granted[size + 1], granted[size + 2] = 'r:' .. at, 'g' .. deadline .. last .. index
      granted[size + 3], granted[size + 4] = 'i:' .. index, at
      bound, index = bound and math.min(bound, deadline) or deadline, index + 1
    end
    dropped[count + 1], longest = 'q:' .. at, math.max(longest, deadline)
    if node ~= '-' then
      local channel = '{' .. tag .. '}rwlease:' .. sub(at, 1, 11)
      local message = told[channel]
      if not message then
        message = { channel = channel, text = '' }
        told[channel], told[#told + 1] = message, message
      end
      message.text = message.text .. ' ' .. at .. ' ' .. last .. ' ' .. deadline
      if node == ARGV[1] then
        message[#message + 1] = at -- nobody else has its subscription
      end
    end
    at, count = behind, count + 1
  end
end
local waiting = waiters - count
if is_right and count > 0 and (waiting > 0) == (at ~= '-' or other ~= false) and waiting >= 0 then
  if longest + GRACE > ends then
    life = longest + GRACE + SLACK .. ''
  end
  set = { 's', (life or sub(line, 3, 15)) .. last, unpack(granted) }
  for _, field in ipairs(dropped) do
    gone[#gone + 1] = field
  end
  local list, size = mode == 'w' and 'writers_' or 'readers_', #set
  if at ~= '-' then
    set[size + 1], set[size + 2], set[size + 3], set[size + 4] = list .. 'head', at, 'q:' .. at, mode .. ' -' .. behind_them
  else
    gone[#gone + 1], gone[#gone + 2] = list .. 'head', list .. 'tail'
  end
  size = #set
  if waiting == 0 then
    gone[#gone + 1], gone[#gone + 2] = 'waiters', 'fair'
  else
    set[size + 1], set[size + 2] = 'waiters', waiting
    if left_fair ~= fair then
      set[size + 3], set[size + 4] = 'fair', left_fair
    end
  end
  size = #set
  if mode == 'r' and waiting == 0 then
    set[2] = '2S' .. set[2] .. bound .. ((life or ends) - now > KEEP and 3 or 2) .. index
    gone[#gone + 1], gone[#gone + 2] = 'readers', 'read_min'
  else
    set[2] = '2Q' .. set[2]
    if mode == 'r' then
      set[size + 1], set[size + 2], set[size + 3], set[size + 4] = 'readers', index, 'read_min', bound
    end
  end
  if mode == 'r' and readers <= FEW and index > FEW and not redis.call('HGET', KEYS[1], 'wide') then
    set[#set + 1], set[#set + 2] = 'wide', string.rep('-', 65)
  end
  local more = mode == 'r' and count == GRANTS and waiting > 0 and 1 or 0
  handed = { told = told, count = count, more = more, unheard = {} }
end
