-- @layer
-- A semaphore: its state line, its permits, and its next waiters. Its holders are stored as readers
-- are (readers.lua). Its waiters are in one queue, first in, first out: none passes the head,
-- however few permits it requests.
local LINE_PATTERN = '^2(P)(%d+)'
local TAIL_PATTERN = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)([0-3])(%d+) (%d+) (%d+)$' -- lower bound of deadlines, flags, limit, used, holders
local QUEUE_FIELDS = { 'waiters', 'head', 'tail', 'ticket', 'lapsed_clients', 'sweep' }

-- Fields of a lock that the shared parts read.
for _, field in ipairs({ 'writer', 'forced_up_to', 'revoked_up_to', 'reader_phase', 'cached_readers', 'fair_writers' }) do
  fields[field] = false
end

-- Parses the state line, and loads the fields that the caller needs. Returns an error reply if the
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
  local queue_field = get('waiters') or get('ticket') or get('lapsed_clients') or get('sweep')
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

-- Writes the record of a holder that now has `new_permits` permits.
local function set_permits(id, state, deadline, token, index, permits, new_permits)
  put('used', number('used') - permits + new_permits)
  put_reader(id, state, deadline, token, index, new_permits)
end

local checks_all = true -- whether the check for expired holders goes on until all were checked

-- Returns true if this many permits are left. If not, checks for expired holders; the check goes on
-- in later calls if they could free enough.
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

-- Grants permits to a waiter. The grant lasts for the waiter's claim window, until the waiter
-- claims it. The caller has its full lease at once.
local function grant(waiter, permits)
  local token, is_caller = next_token(), waiter.id == caller_id
  local deadline = now_ms + (is_caller and waiter.lease or waiter.window)
  unlink(waiter)
  add_reader(waiter.id, is_caller and 'h' or 'g', deadline, token, permits)
  if not is_caller then
    grants[#grants + 1] = { waiter = waiter, deadline = deadline, token = token }
  end
end

-- Grants the head its permits. Returns false if it cannot. A check of the holders may show that the
-- head's client is gone. Then another waiter is the head.
local function grant_next()
  local waiter = first_alive('p')
  if grants_left <= 0 then
    return false
  elseif not waiter then
    if checks_left > 0 then
      remove_expired_readers(MAX_READERS_CHECKED_UNBLOCKED) -- expired holders block no waiter: the rest go later
      checks_left = 0
    end
    return false
  end
  local permits = tonumber(waiter.fairness) or malformed_error('waiter')
  if permits > number('limit') then
    unlink(waiter) -- the limit was lowered: its next poll replies that
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
