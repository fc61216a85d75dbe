-- Tells whether an acquisition holds the lock, and how. Reads only.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  id
--
-- Reply: status, now, 0
--   writes  token, deadline
--   reads   token, deadline
--   absent  it does not hold: it never did, it waits, or its lease has ended
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS.
-- Cost: HGET and TIME; of one of several holders HGET or HMGET more.

-- @include constants
-- @include head
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return refuse('count')
elseif not is_id(ARGV[2]) then
  return refuse('id')
end

-- @include hash
-- @include line

return answer(function()
  local mine = 'r:' .. ARGV[2]
  local strange = open({ 'writer', mine, 'forced' })
  if strange then
    return strange
  end
  if get('writer') then
    local _, deadline, token, id = parse(get('writer'))
    if id == ARGV[2] and deadline > now then
      return reply('writes', 0, token, deadline)
    end
  end
  if get(mine) then
    local _, deadline, token = parse(get(mine))
    if deadline > now and token > number('forced') then
      return reply('reads', 0, token, deadline)
    end
  end
  return reply('absent', 0)
end)
