-- @layer
-- The state line, the field `s`: the version, the shape, the end of the key's life, the last token,
-- and what the shape says. See docs/protocol.md.
local LINE_PATTERN = '^2([FWRSQ])(%d+)'
local HOLDER_PATTERN = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)([0-3])([%w_-]+)$' -- deadline, flags, id
local CACHED_HOLDER_PATTERN = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)([kcb])([0-3])(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)([%w_-]+)$' -- and state, token
local READERS_PATTERN = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)([0-3])([1-9]%d*)$' -- bound of the deadlines, flags, number

-- A sole holder, as the fields that tell of one.
local function open_holder(kind, token, tail)
  local deadline, flags, id = string.match(tail, HOLDER_PATTERN)
  local state, fence = 'h', token
  if not id then
    deadline, state, flags, token, id = string.match(tail, CACHED_HOLDER_PATTERN)
  end
  if not id or not is_id(id) or token > fence then
    malformed('s')
  elseif kind == 'W' then
    imply('writer', state .. deadline .. token .. id)
  else
    imply('r:' .. id, state .. deadline .. token .. '0')
    imply('i:0', (is_cached(state) and '+' or '') .. id)
    imply('readers', 1)
    imply('read_min', deadline)
    if is_cached(state) then
      imply('cached', 1)
    end
  end
  if flags >= '2' then
    imply('revoked', token)
  end
end

local function open_readers(tail)
  local least, flags, readers = string.match(tail, READERS_PATTERN)
  if not readers then
    malformed('s')
  end
  leftover = flags >= '2'
  imply('readers', readers)
  imply('read_min', least)
end

-- Takes the line apart; of a queue it reads the fields that the caller needs at once. Returns an
-- error reply if the key is not a lock of this protocol.
local function open(needed)
  local kind, token, tail = open_line(LINE_PATTERN)
  if not kind then
    return token -- an error reply, unless there is no key
  elseif kind == 'W' or kind == 'R' then
    open_holder(kind, token, tail)
  elseif kind == 'S' then
    open_readers(tail)
  elseif tail ~= '' then
    malformed('s')
  elseif kind == 'Q' then
    prefetch(needed)
  end
end

-- The shape that what is known by now has, and the tail of its line, for a key that lives until
-- `ends`. A queue stays one until nobody waits and no writer holds.
local function shaped(ends)
  if is_idle() then
    return 'F', ''
  elseif shape == 'Q' and get('writer') then
    return 'Q', ''
  elseif get('waiters') or get('upgrader') or get('sweep') or get('forced') then
    return 'Q', ''
  end
  local readers, writer, revoked = number('readers'), get('writer'), get('revoked')
  local long, left = ends - now > IDLE_KEY_TTL and 1 or 0, get('ticket') or get('phase') or get('lapsed')
  if shape ~= 'Q' and (writer or shape ~= 'S') and not left and readers + (writer and 1 or 0) == 1 then
    local id = not writer and bare(get('i:0') or malformed('readers'))
    -- It has claimed: a grant that has not stands only in a queue.
    local state, deadline, token, rest = parse(writer or get('r:' .. id) or malformed('readers'))
    local flags, kind = long + (token <= number('revoked') and 2 or 0), writer and 'W' or 'R'
    if state ~= 'h' then
      return kind, format('%013.0f%s%d%016.0f%s', deadline, state, flags, token, id or rest)
    elseif token == number('fence') then
      return kind, format('%013.0f%d%s', deadline, flags, id or rest)
    end
  end
  if writer or revoked or get('cached') then
    return 'Q', ''
  end
  return 'S', format('%013.0f%d%.0f', number('read_min'), long + (left and 2 or 0), readers)
end

-- The fields that a line of this shape tells of.
local function told(kind)
  if kind == 'W' then
    return { 'writer', 'revoked' }
  elseif kind == 'R' then
    return { 'r:' .. bare(get('i:0')), 'i:0', 'readers', 'read_min', 'revoked', 'cached' }
  end
  return kind == 'S' and { 'readers', 'read_min' } or {}
end
