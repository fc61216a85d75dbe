-- The commonest hand-off, without the machinery and to the same effect: the last holder goes,
-- neither a reader nor an upgrader waits, and the writer at the head of the queue lives.
--
-- `hand_off` is given the holder's fields. In any other case it writes nothing and returns nothing;
-- else it returns 'heard', or 'unheard' if the grant must be taken back because the waiter's client
-- is gone.
local FIRST = '^w %- (%S+) %d+ (%d+) (%d+) %d+ (%d+) ([fr]) (%S+) (%S+) %d+$' -- an entry, as in waiters.lua
local SECOND = '^w %S+( %S+ %d+ %d+ %d+ %d+ %d+ %a %S+ %S+ %d+)$'

local function hand_off(...)
  local queue = redis.call(
    'HMGET', KEYS[1], 'writers_head', 'readers_head', 'upgrader', 'q:' .. ARGV[3], 'lapsed', 'fair', 'until'
  )
  local id, fair, waiters = queue[1], tonumber(queue[6] or 0), tonumber(lock[4])
  if not id or queue[2] or queue[3] or queue[4] or not fair or not waiters or now < PADDED then
    return
  end
  local entry = redis.call('HGET', KEYS[1], 'q:' .. id)
  local behind, seen, ttl, window, fairness, node, tag = string.match(entry or '', FIRST)
  local client = string.sub(id, 1, 11)
  if not behind or seen + ttl <= now or string.find(queue[5] or '', client, 1, true) then
    return
  end

  local gone, deadline = { 'q:' .. id, ... }, now + window
  local ends, stamp = deadline .. '', clock[1] .. string.sub('00000' .. clock[2], -6)
  local set = { 'writer', 'g' .. ends .. stamp .. id, 'fence', stamp }
  if behind ~= '-' then
    local rest = string.match(redis.call('HGET', KEYS[1], 'q:' .. behind) or '', SECOND)
    if not rest or waiters < 2 then
      return
    end
    set[5], set[6], set[7], set[8], set[9], set[10] = 'writers_head', behind, 'q:' .. behind, 'w -' .. rest, 'waiters', waiters - 1
    if fairness == 'f' then
      set[11], set[12] = 'fair', fair - 1
    end
  elseif waiters == 1 then
    for _, field in ipairs({ 'writers_head', 'writers_tail', 'waiters', 'fair' }) do
      gone[#gone + 1] = field
    end
  else
    return
  end
  local life
  if deadline + GRACE > (tonumber(queue[7]) or 0) then
    life = deadline + GRACE + SLACK .. ''
    set[#set + 1], set[#set + 2] = 'until', life
  end
  redis.call('HDEL', KEYS[1], '-') -- so that a full memory does not refuse what follows
  redis.call('HSET', KEYS[1], unpack(set)) -- before the HDEL, for a user without the right to set
  redis.call('HDEL', KEYS[1], unpack(gone))
  if life then
    redis.call('PEXPIREAT', KEYS[1], life)
  end

  if node ~= '-' then
    local message = now .. ' 0 ' .. id .. ' ' .. stamp .. ' ' .. ends
    local heard_by = redis.pcall('SPUBLISH', '{' .. tag .. '}rwlease:' .. client, message)
    if heard_by == 0 and node == ARGV[1] then
      return 'unheard'
    end
  end
  return 'heard'
end
