-- @layer
-- A semaphore: its state line, its permits, and who is next. Its holders are kept as readers are
-- (readers.lua), its waiters in one queue, first in, first out: none passes the head, however few
-- permits it wants.
local LINE_PATTERN = '^2(P)(%d+)'
local TAIL_PATTERN = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)([0-3])(%d+) (%d+) (%d+)$' -- bound of the deadlines, flags, limit, used, holders
local QUEUE_FIELDS = { 'waiters', 'head', 'tail', 'ticket', 'lapsed', 'sweep' }

-- Fields of a lock, which the shared parts look for.
for _, field in ipairs({ 'writer', 'forced', 'revoked', 'phase', 'cached', 'fair' }) do
  fields[field] = false
end

-- Takes the line apart, and reads the fields that the caller needs. Returns an error reply if the
-- key is not a semaphore.
local function load(field_names)
  local line_shape, load_error, tail = parse_line_head(LINE_PATTERN)
  if not line_shape then
    return load_error
  end
  local min_deadline, flags, limit, used, holders = string.match(tail, TAIL_PATTERN)
  if not holders or tonumber(limit) < 1 or tonumber(limit) > MAX_PERMITS then
    malformed_error('s')
  end
  set_implied('read_min', min_deadline)
  set_implied('limit', limit)
  set_implied('used', used)
  set_implied('readers', holders)
  has_queue_fields = flags >= '2'
  for _, field in ipairs(QUEUE_FIELDS) do
    if has_queue_fields then
      field_names[#field_names + 1] = field
    else
      fields[field] = false
    end
  end
  if field_names[1] then
    load_fields(field_names)
  end
end

local function encode_line(new_expiry)
  local queue_field = get('waiters') or get('ticket') or get('lapsed') or get('sweep')
  local flags = (new_expiry - now_ms > IDLE_KEY_TTL and 1 or 0) + (queue_field and 2 or 0)
  return 'P', format('%013.0f%d%.0f %.0f %.0f', number('read_min'), flags, number('limit'), number('used'), number('readers'))
end

local function implied_by()
  return { 'read_min', 'limit', 'used', 'readers' }
end

-- @include flush
-- @include wait_queue
-- @include readers
-- @layer
-- @include grant_budget

-- Writes the record of a holder that from now on has `kept` of its permits.
local function set_permits(id, state, deadline, token, index, permits, new_permits)
  put('used', number('used') - permits + new_permits)
  put_reader(id, state, deadline, token, index, new_permits)
end

local checks_all = true -- whether the look for dead holders goes on until all were looked at

-- Whether so many permits are left; dead holders are looked for where they are not. The look goes
-- on if these could make room.
local function has_permits(permits)
  if number('used') + permits > number('limit') and checks_left > 0 then
    local is_incomplete, alive_count, expired_count = remove_expired_readers(checks_left)
    if is_incomplete and alive_count + permits <= number('limit') and (checks_all or expired_count > 0) then
      has_more_work = 1
    end
    checks_left = 0
  end
  return number('used') + permits <= number('limit')
end

-- The claim is the waiter's own affair: until it comes, a grant lasts for the waiter's window. The
-- caller has its full lease at once.
local function grant(waiter, permits)
  local token, is_caller = next_token(), waiter.id == caller_id
  local deadline = now_ms + (is_caller and waiter.lease or waiter.window)
  unlink(waiter)
  add_reader(waiter.id, is_caller and 'h' or 'g', deadline, token, permits)
  if not is_caller then
    grants[#grants + 1] = { waiter = waiter, deadline = deadline, token = token }
  end
end

-- Grants the head its turn; false if it cannot go. A look at the holders may show that the client
-- of the head is gone: then another waiter is the head.
local function grant_next()
  local waiter = first_alive('p')
  if grants_left <= 0 then
    return false
  elseif not waiter then
    if checks_left > 0 then
      remove_expired_readers(MAX_READERS_CHECKED_UNBLOCKED) -- the dead are in nobody's way, and go by and by
      checks_left = 0
    end
    return false
  end
  local permits = tonumber(waiter.fairness) or malformed_error('waiter')
  if permits > number('limit') then
    unlink(waiter) -- the limit was lowered; its next poll is told
    return true
  elseif not has_permits(permits) then
    return first_alive('p') ~= waiter
  end
  if first_alive('p') == waiter then
    grant(waiter, permits)
  end
  return true
end

local function grant_waiters()
  while grants_left > 0 and grant_next() do
    grants_left = grants_left - 1
  end
  if grants_left <= 0 and get('head') then
    has_more_work = 1
  end
end

-- @include notify
