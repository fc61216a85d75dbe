-- Extends a lease, and never shortens it. For a lease that was granted from the queue it is also
-- the claim. The caller says how it holds. If it reads, a write with this token becomes a read: a
-- failover has lost the downgrade. A renewal never turns a read into a write.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  id                   ARGV[3]  lease, ms
-- ARGV[4]  r, w: how it holds   ARGV[5]  its token
-- ARGV[6]  only for a lease that is or becomes cached: tokens, of a write up to TOKEN_BLOCK.
--          Without it a cached holder is in use and will be released: it is not recalled
--
-- Reply: status, now, more
--   renewed   token, deadline, and with tokens the last token and who recalls the lease: w, r or -
--   revoked   as renewed: the lease holds, and will not be extended (a grant is claimed
--             nevertheless)
--   other     token, deadline: it holds with this token, not with the given one; nothing was
--             changed
--   not_held  it does not hold
-- For a holder with the given token, the line or the record is always written, even with an
-- unchanged deadline: replicas confirm only what is written.
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: of a sole holder HGET, TIME, HSET and at times PEXPIREAT; of a write beside a queue, or of
-- one of several readers, HGET or HMGET more; otherwise a bounded number of calls.

-- @include constants

-- Fast paths: no holder is revoked or forced out, and beside readers no waiter can be granted. Of
-- cached leases only a read beside a queue or other cached reads (fast/renew_cached.lua).
-- @include fast/renew_args
local expected_mode = ARGV[4]
if is_fast_path and (expected_mode == 'r' or expected_mode == 'w') then
  local line_prefix, flag, own_field = sub(line, 1, 2), sub(line, 45, 45), 'r:' .. caller
  local _, digits_end = find(line, '^2%u%d+')
  local holder_field, record = nil, nil -- the holder's record and its field; `s` for a sole holder
  if not digits_end or (ARGV[6] and line_prefix ~= '2Q') then -- luacheck: ignore 542
    -- Malformed, or a sole holder or the first one that is cached: the slow path decides.
  elseif line_prefix == '2W' or line_prefix == '2R' then
    if digits_end > 44 and sub(line, 46) == caller and flag <= '1' and (expected_mode == 'w' or line_prefix == '2R') then
      holder_field, record = 's', sub(line, 31, 44)
    end
  elseif line_prefix == '2S' then
    if digits_end == #line and find(line, '^[0-3][1-9]', 45) then
      holder_field, record = own_field, redis.call('HGET', KEYS[1], own_field)
    end
  elseif line_prefix == '2Q' and digits_end == 31 and #line == 31 then
    local queue_state = not ARGV[6] and redis.pcall('HMGET', KEYS[1], 'writer', own_field, 'waiters', 'revoked_up_to', 'forced_up_to')
    if ARGV[6] then
-- @include fast/renew_cached
    elseif not queue_state[4] and not queue_state[5] then
      if queue_state[2] and queue_state[3] then
        -- A waiter may be granted the lock in place of an expired reader.
        local other_fields = {}
-- @include fast/read_queue
-- @include fast/first_waiter
-- @include fast/queue_blocked
        holder_field, record = own_field, not writer and is_blocked and queue_state[2]
      elseif queue_state[2] then
        holder_field, record = own_field, queue_state[2]
      elseif queue_state[1] and sub(queue_state[1], 31) == caller and expected_mode == 'w' then
        holder_field, record = 'writer', queue_state[1]
      end
    end
  end
  if record and not ARGV[6] and holder_field ~= 's' and find(record, '^[kcb]') then
    record = nil -- it is or was cached
  end
-- @include fast/renew
end

-- @include prelude

local tokens = ARGV[6] and integer_arg(6, 1, TOKEN_BLOCK)
if #KEYS ~= 1 or (#ARGV ~= 5 and #ARGV ~= 6) then
  return argument_error('number of keys or arguments')
elseif not is_id(caller) then
  return argument_error('id')
elseif not integer_arg(3, 1, MAX_DURATION) then
  return argument_error('lease')
elseif expected_mode ~= 'r' and expected_mode ~= 'w' then
  return argument_error('mode')
elseif not integer_arg(5, 1, MAX_SAFE_INTEGER) then
  return argument_error('token')
elseif ARGV[6] and not tokens then
  return argument_error('tokens')
end

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters
-- @include recall
-- @include become_reader

-- Returns the caller's lease, if it holds: mode, state, deadline, token, and a reader's index.
local function find_lease()
  local alive, state, deadline, token, index = find_reader(caller)
  if alive then
    return 'r', state, deadline, token, index
  elseif get('writer') then
    local writer_state, writer_deadline, writer_token, id = decode_record(get('writer'))
    if id == caller and writer_deadline > now_ms then
      return 'w', writer_state, writer_deadline, writer_token
    end
  end
end

-- Returns the state after this call. Only a claim makes a lease cached.
local function state_after_renewal(state)
  if state == 'g' then
    return tokens and 'k' or 'h'
  end
  return is_cached(state) and not tokens and 'b' or state
end

return run(function()
  local load_error = load({ 'writer', 'r:' .. caller, 'revoked_up_to', 'forced_up_to', 'waiters', 'cached_readers' })
  if load_error then
    return load_error
  end
  local mode, state, deadline, token, index = find_lease()
  local status = mode and 'other' or 'not_held'
  if mode and token == expected_token then
    local is_revoked = token <= number('revoked_up_to')
    status = is_revoked and 'revoked' or 'renewed'
    state, deadline = state_after_renewal(state), deadline_after_renewal(deadline, token, lease)
    if mode == 'r' then
      put_reader(caller, state, deadline, token, index)
    elseif expected_mode == 'r' then
      mode, state = 'r', become_reader(caller, state, deadline, token)
    else
      set_writer(caller, state, deadline, token)
      if tokens and is_cached(state) and status == 'renewed' then
        reserve_tokens(tokens)
      end
    end
  end
  if get('waiters') and mode ~= 'w' then
    finish(true)
  else
    flush(true)
  end
  if status == 'not_held' then
    return ok_reply(status, has_more_work)
  elseif tokens and status ~= 'other' then
    return ok_reply(status, has_more_work, token, deadline, number('fence'), recall_mode(state))
  end
  return ok_reply(status, has_more_work, token, deadline)
end)
