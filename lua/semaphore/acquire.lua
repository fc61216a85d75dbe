-- Acquires permits of a semaphore, or joins its queue. A repeated call is a waiter's poll. The
-- first call creates the semaphore with its limit. Idempotent for an acquisition.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id                   ARGV[4]  lease, ms
-- ARGV[5]  permits              ARGV[6]  limit, which must be the semaphore's
-- ARGV[7]  hash tag of the slot's channels
-- and for a waiter:
-- ARGV[8]  queue terms, as in acquire_write.lua
-- ARGV[9]  its ticket, from its second call on
--
-- Reply: status, now, more, then
--   granted         the id, token, deadline, as in acquire_write.lua
--   queued          ticket, upper bound of the waiters ahead, lower bound of the holders' deadlines
--   busy            lower bound of the holders' deadlines: the try failed, because too few permits
--                   are left or acquisitions wait
--   limit_mismatch  the semaphore's limit: the caller names another one, or it was lowered below
--                   the permits that the caller requests. If the caller waited, it has left the
--                   queue. Nothing else was changed
--   queue_full      waiters
--   too_late        nothing: the call came after not_after, and changed nothing
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS, OOM.
-- Cost: with permits left and an empty queue HGET, TIME, HSET, at times PEXPIREAT, and HGET from
-- the second holder on (after a queue HMGET); for a new key EXISTS and PEXPIREAT. Joining the queue
-- or a poll HGET, TIME, HMGET, HSET and at most two HGET. Otherwise a bounded number of calls,
-- independent of the number of holders and waiters.

-- @include constants

-- Fast paths: no holder has expired, and permits are left and nobody waits; or the caller waits,
-- and nothing else changes (fast/permit_enqueue.lua).
-- @include fast/args
local wanted_permits, expected_limit = tonumber(argv[5]), tonumber(argv[6])
local is_fast_path = is_well_formed
  and (arg_count < 9 or (#argv[9] < 16 and find(argv[9], '^[1-9]%d*$')))
  and wanted_permits
  and expected_limit
  and wanted_permits >= 1
  and wanted_permits <= expected_limit
  and expected_limit <= MAX_PERMITS
  and not find(argv[5] .. argv[6], '%D')
local _, digits_end = nil, nil
if is_fast_path and line then
  _, digits_end = find(line, '^2P%d+')
end
if is_fast_path and (not line and arg_count < 9 or (digits_end and digits_end > 44 and sub(line, 16, 31) < now_us_text)) then
-- @include fast/lease_expiry
  local own_field = 'r:' .. caller
  local new_line, extra_fields
  if not line then
    if redis.pcall('EXISTS', KEYS[1]) == 0 then
      new_line = '2P' .. key_expiry .. now_us_text .. deadline_text .. long_flag
        .. expected_limit .. ' ' .. wanted_permits .. ' 1'
      extra_fields = { own_field, 'h' .. deadline_text .. now_us_text .. '0 ' .. wanted_permits, 'i:0', caller }
    end
  else
    local flag, limit, used, holders = string.match(line, '^([0-3])([1-9]%d*) (%d+) (%d+)$', 45)
    local min_deadline, is_empty = sub(line, 32, 44), nil -- whether nobody waits, and permits are left
    if not holders or tonumber(limit) ~= expected_limit then -- luacheck: ignore 542
      -- Malformed, or another limit: the slow path decides.
    elseif flag >= '2' or (used + wanted_permits > expected_limit and arg_count > 7) then
      local other_fields = { 'tail', 'q:' .. caller, own_field }
-- @include fast/permit_queue
      is_empty = used + wanted_permits <= expected_limit and not head and is_queue_valid() and not queue_values[7]
      if not is_empty and arg_count > 7 then
-- @include fast/permit_enqueue
      end
      long_flag = long_flag + (flag >= '2' and 2 or 0)
    else
      is_empty = used + wanted_permits <= expected_limit
        and (holders == '0' or (min_deadline > now_ms_text and not redis.call('HGET', KEYS[1], own_field)))
    end
    if is_empty and arg_count < 9 and holders ~= LISTPACK_READERS .. '' then
      if holders == '0' or deadline_text < min_deadline then
        min_deadline = deadline_text
      end
      new_line = '2P' .. key_expiry .. now_us_text .. min_deadline .. long_flag
        .. limit .. ' ' .. used + wanted_permits .. ' ' .. holders + 1
      extra_fields = {
        own_field, 'h' .. deadline_text .. now_us_text .. holders .. ' ' .. wanted_permits, 'i:' .. holders, caller,
      }
    end
  end
  if new_line then
-- @include fast/acquire_commit
  end
end

-- @include prelude
-- @include acquire_args
-- @include field_cache
-- @include semaphore_state

-- Parses the permits and the limit. Returns an error reply if they are malformed.
local function parse_permits(args)
  args.permits, args.expected_limit = integer_arg(5, 1, MAX_PERMITS), integer_arg(6, 1, MAX_PERMITS)
  if not args.permits then
    return argument_error('permits')
  elseif not args.expected_limit or args.expected_limit < args.permits then
    return argument_error('limit')
  end
  args.fairness = format('%.0f', args.permits) -- a waiter's record has them in this place
end

local request, args_error = parse_acquire_args(7, parse_permits)

-- @include enqueue

-- Acquires permits, or joins the queue. Returns an error reply, or a reply of `enqueue`; and
-- whether the call acquires something.
local function acquire_or_enqueue(waiter, alive, index)
  if alive ~= nil then
    remove_reader(caller_id, index) -- its own expired record would block it
  end
  if waiter then
    return request.can_wait and touch_waiter(waiter), false
  elseif request.ticket > 0 then
    return enqueue('p'), true
  elseif not first_alive('p') and has_permits(request.permits) then
    add_reader(caller_id, 'h', now_ms + request.lease, next_token(), request.permits)
    return nil, true
  elseif request.can_wait then
    return enqueue('p'), true
  end
  return nil, false
end

-- Returns true if the caller has another limit than the semaphore. A waiter may keep the limit with
-- which it joined, if the semaphore can still grant its permits.
local function is_off_limit(waiter)
  local limit = number('limit')
  return request.permits > limit or (not waiter and request.ticket == 0 and request.expected_limit ~= limit)
end

return run(function()
  local load_error = args_error or load({ 'r:' .. request.id, 'q:' .. request.id })
  if load_error then
    return load_error
  elseif request.not_after > 0 and now_ms > request.not_after then
    return ok_reply('too_late', 0)
  end
  caller_id, checks_all = request.id, request.can_wait
  if shape == 'N' then
    put('limit', request.expected_limit)
  end
  local waiter, acquires = load_waiter(caller_id), false
  local alive, state, deadline, token, index, permits = find_reader(caller_id)
  if alive then
    -- This is the claim of a grant, or a repeated call. The record is written in any case: `WAIT`
    -- counts replicas only for what the call before it wrote.
    deadline = state == 'g' and math.max(deadline, now_ms + request.lease) or deadline
    put_reader(caller_id, 'h', deadline, token, index, permits)
  elseif is_off_limit(waiter) then
    if not waiter then
      return ok_reply('limit_mismatch', 0, number('limit'))
    end
    unlink(waiter)
    finish(true)
    return ok_reply('limit_mismatch', has_more_work, number('limit'))
  else
    local early_reply
    early_reply, acquires = acquire_or_enqueue(waiter, alive, index)
    if early_reply then
      return early_reply
    end
  end
  finish(not acquires)
  waiter = load_waiter(caller_id)
  local holds, _, new_deadline, new_token = find_reader(caller_id)
  if holds then
    return ok_reply('granted', has_more_work, caller_id, new_token, new_deadline)
  elseif waiter then
    local head = neighbor(get('head')) or malformed_error('queue')
    return ok_reply('queued', has_more_work, waiter.ticket, math.max(waiter.ticket - head.ticket, 0), number('read_min'))
  end
  return ok_reply('busy', has_more_work, number('read_min'))
end)
