-- The slow path of an acquire: handles expired holders, a queue, and a grant that another call has
-- made to this acquisition.
local request, args_error = parse_acquire_args(7, parse_flags)

-- @include enqueue

-- Returns the caller's lease, if it holds in this mode: state, deadline, token, and a reader's
-- index.
local function find_lease(mode)
  if mode == 'r' then
    local alive, state, deadline, token, index = find_reader(request.id)
    if alive then
      return state, deadline, token, index
    end
  else
    local id, state, deadline, token = current_writer()
    if id == request.id then
      return state, deadline, token
    end
  end
end

-- Claims the caller's grant. Returns false if there is none. Writes the record even if it does not
-- change: `WAIT` counts replicas only for what the call before it wrote. A repeated call changes no
-- recall mark and reserves no more tokens.
local function claim_grant(mode)
  local state, deadline, token, index = find_lease(mode)
  if not state then
    return false
  elseif state == 'g' then
    state, deadline = claimed_state, deadline_after_renewal(deadline, token, request.lease)
    if mode == 'w' and token > number('revoked_up_to') then
      reserve_tokens(tokens_for_writer)
    end
  end
  if mode == 'w' then
    set_writer(request.id, state, deadline, token)
  else
    put_reader(request.id, state, deadline, token, index)
  end
  return true
end

-- Removes the caller's own expired record, which would block it.
local function remove_expired_record()
  local alive, _, _, _, index = find_reader(request.id)
  if alive == false then
    remove_reader(request.id, index)
  end
end

local function can_grant(mode)
  if current_writer() or current_upgrader() then
    return false
  end
  local next_reader, next_writer = first_alive('r'), first_alive('w')
  if mode == 'w' then
    return not next_reader and not next_writer and not has_other_readers(0)
  end
  return not next_reader and (not next_writer or (request.fairness == 'r' and number('fair_writers') == 0))
end

-- Returns true if only cached holders block an acquire in this mode.
local function blocked_only_by_cached(mode)
  local _, state = current_writer()
  if is_cached(state) then
    return not first_alive('r') and not first_alive('w')
  end
  local readers = number('readers')
  return not state and mode == 'w' and not get('waiters') and readers > 0 and readers == number('cached_readers')
end

local function grant_to_caller(mode)
  local token, deadline = next_token(), now_ms + request.lease
  if mode == 'w' then
    set_writer(request.id, claimed_state, deadline, token)
    reserve_tokens(tokens_for_writer)
  else
    add_reader(request.id, claimed_state, deadline, token)
  end
end

local function holder_deadline()
  local _, _, deadline = current_writer()
  return deadline or number('read_min')
end

local function queued_reply(waiter)
  local head = neighbor(get(HEAD_FIELD[waiter.mode])) or malformed_error('queue')
  return ok_reply('queued', has_more_work, waiter.ticket, math.max(waiter.ticket - head.ticket, 0), holder_deadline())
end

-- A waiter recalls the cached holders that block it. A try does so if nothing else blocks it.
local function recall_blockers(mode)
  local waiter = load_waiter(caller_id)
  if waiter or blocked_only_by_cached(mode) then
    local repeat_recall = waiter and get(HEAD_FIELD[mode]) == caller_id
    if current_writer() then
      recall_writer(repeat_recall)
    elseif mode == 'w' then
      recall_readers(repeat_recall)
    end
  end
end

local function acquire(mode)
  local load_error = args_error or load({ 'writer', 'readers', 'waiters', 'cached_readers' })
  if load_error then
    return load_error
  elseif request.not_after > 0 and now_ms > request.not_after then
    return ok_reply('too_late', 0)
  end
  caller_id, claimed_state, tokens_for_writer = request.id, request.cached and 'k' or 'h', request.tokens
  if claim_grant(mode == 'w' and 'r' or 'w') then
    return request.can_wait and not request.is_cached_try and argument_error('id: it holds the lock in the other mode')
      or ok_reply('busy', 0, holder_deadline())
  end
  local waiter = load_waiter(caller_id)
  local is_known, early_reply, acquires = waiter or claim_grant(mode), nil, false
  if waiter and waiter.mode ~= mode then
    return argument_error('id: it waits in the other mode')
  elseif waiter and request.can_wait then
    early_reply = touch_waiter(waiter)
  elseif not is_known then
    remove_expired_record()
    acquires = true
    if request.ticket > 0 then
      early_reply = enqueue(mode)
    elseif can_grant(mode) then
      grant_to_caller(mode)
    elseif request.can_wait and (not request.is_cached_try or blocked_only_by_cached(mode)) then
      early_reply = enqueue(mode)
    else
      acquires = false
    end
  end
  if early_reply then
    return early_reply
  end
  finish(not acquires, function()
    if not find_lease(mode) then
      recall_blockers(mode)
    end
  end)
  notify_holders(request.tag, mode)
  local state, deadline, token = find_lease(mode)
  waiter = load_waiter(caller_id)
  if state and request.cached then
    return ok_reply('granted', has_more_work, caller_id, token, deadline, number('fence'), recall_mode(state))
  elseif state then
    return ok_reply('granted', has_more_work, caller_id, token, deadline)
  elseif waiter then
    return queued_reply(waiter)
  end
  return ok_reply(blocked_only_by_cached(mode) and 'recalling' or 'busy', has_more_work, holder_deadline())
end
