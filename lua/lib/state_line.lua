-- @layer
-- The state line, the field `s`: the version, the shape, the key's expiry, the last token, and what
-- the shape implies. See docs/protocol.md.
local LINE_PATTERN = '^2([FWRSQ])(%d+)'
local HOLDER_PATTERN = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)([0-3])([%w_-]+)$' -- deadline, flags, id
local CACHED_HOLDER_PATTERN = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)([kcb])([0-3])(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)([%w_-]+)$' -- and state, token
local READERS_PATTERN = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)([0-3])([1-9]%d*)$' -- lower bound of deadlines, flags, readers

-- Sets the fields that a sole holder implies.
local function imply_holder(line_shape, token, tail)
  local deadline, flags, id = string.match(tail, HOLDER_PATTERN)
  local state, last_token = 'h', token
  if not id then
    deadline, state, flags, token, id = string.match(tail, CACHED_HOLDER_PATTERN)
  end
  if not id or not is_id(id) or token > last_token then
    malformed_error('s')
  elseif line_shape == 'W' then
    set_implied('writer', state .. deadline .. token .. id)
  else
    set_implied('r:' .. id, state .. deadline .. token .. '0')
    set_implied('i:0', (is_cached(state) and '+' or '') .. id)
    set_implied('readers', 1)
    set_implied('read_min', deadline)
    if is_cached(state) then
      set_implied('cached_readers', 1)
    end
  end
  if flags >= '2' then
    set_implied('revoked_up_to', token)
  end
end

local function imply_readers(tail)
  local min_deadline, flags, readers = string.match(tail, READERS_PATTERN)
  if not readers then
    malformed_error('s')
  end
  has_queue_fields = flags >= '2'
  set_implied('readers', readers)
  set_implied('read_min', min_deadline)
end

-- Parses the state line. If there is a queue, also loads the fields that the caller needs. Returns
-- an error reply if the key is not a lock of this protocol.
local function load(field_names)
  local line_shape, token, tail = parse_line_head(LINE_PATTERN)
  if not line_shape then
    return token -- an error reply, or nil if there is no key
  elseif line_shape == 'W' or line_shape == 'R' then
    imply_holder(line_shape, token, tail)
  elseif line_shape == 'S' then
    imply_readers(tail)
  elseif tail ~= '' then
    malformed_error('s')
  elseif line_shape == 'Q' then
    load_fields(field_names)
  end
end

-- Returns the shape of the changed lock and the tail of its line, for a key that expires at
-- `new_expiry`. The shape stays Q until the queue is empty and no writer holds.
local function encode_line(new_expiry)
  if is_idle() then
    return 'F', ''
  elseif shape == 'Q' and get('writer') then
    return 'Q', ''
  elseif get('waiters') or get('upgrader') or get('sweep') or get('forced_up_to') then
    return 'Q', ''
  end
  local readers, writer, revoked = number('readers'), get('writer'), get('revoked_up_to')
  local long_flag = new_expiry - now_ms > IDLE_KEY_TTL and 1 or 0
  local queue_field = get('ticket') or get('reader_phase') or get('lapsed_clients')
  if shape ~= 'Q' and (writer or shape ~= 'S') and not queue_field and readers + (writer and 1 or 0) == 1 then
    local id = not writer and reader_id(get('i:0') or malformed_error('readers'))
    -- Its state is not 'g': an unclaimed grant is only in shape Q.
    local state, deadline, token, rest = decode_record(writer or get('r:' .. id) or malformed_error('readers'))
    local flags, new_shape = long_flag + (token <= number('revoked_up_to') and 2 or 0), writer and 'W' or 'R'
    if state ~= 'h' then
      return new_shape, format('%013.0f%s%d%016.0f%s', deadline, state, flags, token, id or rest)
    elseif token == number('fence') then
      return new_shape, format('%013.0f%d%s', deadline, flags, id or rest)
    end
  end
  if writer or revoked or get('cached_readers') then
    return 'Q', ''
  end
  return 'S', format('%013.0f%d%.0f', number('read_min'), long_flag + (queue_field and 2 or 0), readers)
end

-- Returns the fields that a line of this shape implies.
local function implied_by(line_shape)
  if line_shape == 'W' then
    return { 'writer', 'revoked_up_to' }
  elseif line_shape == 'R' then
    return { 'r:' .. reader_id(get('i:0')), 'i:0', 'readers', 'read_min', 'revoked_up_to', 'cached_readers' }
  end
  return line_shape == 'S' and { 'readers', 'read_min' } or {}
end
