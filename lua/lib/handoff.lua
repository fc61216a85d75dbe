-- The last holder goes, beside a queue: nobody waits any more, or a living writer is the first and
-- neither a reader nor an upgrader waits. To the same effect as the machinery; in any other case
-- `set` stays as it is.
-- @include time
local me = ARGV[2]
local mine = 'r:' .. me
local queue = redis.pcall(
  'HMGET', KEYS[1], 'writer', 'readers', 'waiters', mine, 'read_min', 'writers_head', 'readers_head', 'upgrader', 'q:' .. me, 'lapsed', 'fair'
)
local writer, reader, id = queue[1], queue[4], queue[6]
local waiters, fair = tonumber(queue[3] or 0), tonumber(queue[11] or 0)
if #stamp ~= 16 or sub(line, 16) >= stamp or queue[7] or queue[8] or queue[9] then
  gone = nil
elseif writer and not queue[2] and sub(writer, 31) == me then
  gone = { 'writer' }
elseif reader and not writer and queue[2] == '1' and find(reader, '^[ghb].*0$') and #reader == 31 and (tonumber(queue[5]) or 0) > now then
  gone = { mine, 'i:0', 'readers', 'read_min', 'sweep' }
end
local ends = tonumber(sub(line, 3, 15)) or NEVER
if gone and not queue[3] and ends >= now + GRACE and ends <= now + KEEP then
  set = { 's', '2F' .. sub(line, 3, 31) }
  for _, field in ipairs({ 'ticket', 'phase', 'lapsed', 'revoked', 'forced' }) do
    gone[#gone + 1] = field
  end
elseif gone and id and waiters and fair then
  local behind, seen, ttl, window, fairness, node, tag = string.match(
    redis.call('HGET', KEYS[1], 'q:' .. id) or '',
    '^w %- (%S+) %d+ (%d+) (%d+) %d+ (%d+) ([fr]) (%S+) (%S+) %d+$'
  )
  local client = sub(id, 1, 11)
  if behind and seen + ttl > now and not find(queue[10] or '', client, 1, true) then
    local deadline = now + window .. ''
    if deadline + GRACE > ends then
      life = deadline + GRACE + SLACK .. ''
    end
    set = { 's', '2Q' .. (life or sub(line, 3, 15)) .. stamp, 'writer', 'g' .. deadline .. stamp .. id }
    if writer then
      gone = {} -- its field has the next writer
    end
    gone[#gone + 1] = 'q:' .. id
    local rest = behind ~= '-'
      and string.match(redis.call('HGET', KEYS[1], 'q:' .. behind) or '', '^w %S+( %S+ %d+ %d+ %d+ %d+ %d+ %a %S+ %S+ %d+)$')
    if rest and waiters > 1 then
      set[5], set[6], set[7], set[8], set[9], set[10] = 'writers_head', behind, 'q:' .. behind, 'w -' .. rest, 'waiters', waiters - 1
      if fairness == 'f' then
        set[11], set[12] = 'fair', fair - 1
      end
    elseif behind == '-' and waiters == 1 then
      for _, field in ipairs({ 'writers_head', 'writers_tail', 'waiters', 'fair' }) do
        gone[#gone + 1] = field
      end
    else
      set = nil
    end
    handed = set and {
      node = node,
      channel = '{' .. tag .. '}rwlease:' .. client,
      message = moment .. ' 0 ' .. id .. ' ' .. stamp .. ' ' .. deadline,
    }
  end
end
