-- @layer
-- Grants the lock to the next waiters. Each call that may free a lock ends here. The number of
-- steps is bounded; `has_more_work` says that steps are left.
--
-- Phase-fair: writers are granted first in, first out, and so are readers. When a write ends, the
-- readers in the queue go before the next writer (`reader_phase` is the last of their tickets).
-- When the last reader is gone, the next writer goes. The upgrader goes before all other waiters.
-- @include grant_budget
local claimed_state = 'h' -- the state after the caller's claim
local tokens_for_writer = 1 -- tokens that the caller's write reserves

-- Raises the last token to the end of a block of `count` tokens that begins now. A cached write
-- owns its tokens: from the token of its grant to the last token of the lock.
local function reserve_tokens(count)
  if count > 1 then
    put('fence', math.max(number('fence'), now_us + count - 1))
    extend_expiry_to(math.floor(number('fence') / 1000))
  end
end

-- Ends the write. The readers in the queue go before the next writer.
local function start_reader_phase()
  put('writer', false)
  if get('readers_head') then
    put('reader_phase', number('ticket'))
  end
end

-- Returns the writer that holds: id, state, deadline, token. Removes an expired writer.
local function current_writer()
  local record = get('writer')
  if not record then
    return
  end
  local state, deadline, token, id = decode_record(record)
  if deadline > now_ms then
    return id, state, deadline, token
  end
  if state == 'g' then
    record_lapse(id, deadline)
  end
  start_reader_phase()
end

local function set_writer(id, state, deadline, token)
  put('writer', encode_record(state, deadline, token, id))
  extend_expiry_to(deadline)
end

-- Returns the deadline after a renewal by `requested_lease`. A revoked lease is not extended.
local function deadline_after_renewal(deadline, token, requested_lease)
  return token > number('revoked_up_to') and math.max(deadline, now_ms + requested_lease) or deadline
end

-- Grants the lock to a waiter. The grant lasts for the waiter's claim window, until the waiter
-- claims it. The caller has its full lease at once.
local function grant(waiter)
  local token = next_token()
  local is_caller = waiter.id == caller_id
  local state, deadline = is_caller and claimed_state or 'g', now_ms + (is_caller and waiter.lease or waiter.window)
  if waiter.mode == 'u' then
    local _, _, read_deadline, _, index = find_reader(waiter.id)
    deadline = math.max(deadline, read_deadline)
    remove_reader(waiter.id, index)
    delete_fields('upgrader')
    delete_waiter(waiter)
    count_waiter(waiter, -1)
  else
    unlink(waiter)
  end
  if waiter.mode == 'r' then
    add_reader(waiter.id, state, deadline, token)
  else
    set_writer(waiter.id, state, deadline, token)
    if is_caller then
      reserve_tokens(tokens_for_writer)
    end
  end
  if not is_caller then
    grants[#grants + 1] = { waiter = waiter, deadline = deadline, token = token }
  end
end

-- Returns the upgrader, if it is alive, still reads, and is not revoked.
local function current_upgrader()
  local id = get('upgrader')
  if id then
    local waiter = load_waiter(id)
    local is_reading, _, _, token = find_reader(id)
    if waiter and is_reading and token > number('revoked_up_to') and (id == caller_id or is_alive(waiter)) then
      return waiter
    end
    put('upgrader', false)
    if waiter then
      delete_waiter(waiter)
      count_waiter(waiter, -1)
    end
  end
end

-- Returns true if more than `own_reads` readers are left, after a check for expired ones. If the
-- check meets that many living readers, the expired ones block no waiter, and later calls check for
-- them.
local function has_other_readers(own_reads)
  if number('readers') > own_reads and checks_left > 0 then
    local is_incomplete, alive_count = remove_expired_readers(checks_left)
    if is_incomplete and alive_count <= own_reads then
      has_more_work = 1
    end
    checks_left = 0
  end
  return number('readers') > own_reads
end

local function reader_goes_first(reader, next_writer)
  return not next_writer or reader.ticket <= number('reader_phase') or (reader.fairness == 'r' and number('fair_writers') == 0)
end

-- Grants the lock to one waiter. Returns false if no waiter can be granted. A check of the readers
-- may show that the client of the next waiter is gone. Then another waiter is next.
local function grant_next()
  if current_writer() then
    return false
  end
  local upgrader = current_upgrader()
  if upgrader then
    if has_other_readers(1) then
      return current_upgrader() ~= upgrader
    end
    grant(upgrader)
    return true
  end
  local next_reader, next_writer = first_alive('r'), first_alive('w')
  if grants_left <= 0 then
    return false
  elseif next_reader and reader_goes_first(next_reader, next_writer) then
    grant(next_reader)
    return true
  elseif not next_writer then
    -- Expired readers block no waiter, so later calls remove them. But readers that a forced
    -- release ended must be gone soon.
    local forced = get('forced_up_to')
    checks_left = math.min(checks_left, forced and MAX_READERS_CHECKED or MAX_READERS_CHECKED_UNBLOCKED)
    if remove_expired_readers(checks_left) and forced then
      has_more_work = 1
    end
    checks_left = 0
    return false
  elseif has_other_readers(0) then
    return first_alive('w') ~= next_writer
  end
  next_writer = first_alive('w')
  if next_writer and grants_left > 0 then
    grant(next_writer)
  end
  return true
end

local function grant_waiters()
  while grants_left > 0 and grant_next() do
    grants_left = grants_left - 1
  end
  if grants_left <= 0 and (get('readers_head') or get('writers_head') or get('upgrader')) and not get('writer') then
    has_more_work = 1
  end
end

-- @include notify
