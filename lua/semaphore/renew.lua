-- Extends the lease of permits, and never shortens it. For permits that were granted from the queue
-- it is also the claim. The caller says how many permits it holds. If its record with this token
-- has more, a failover has lost a partial release, and the difference is released. A renewal never
-- adds permits.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name    ARGV[2]  id                   ARGV[3]  lease, ms
-- ARGV[4]  permits it holds     ARGV[5]  its token
--
-- Reply: status, now, more
--   renewed   token, deadline
--   other     token, deadline: it holds with this token, not with the given one; nothing was
--             changed
--   not_held  it does not hold
-- For a holder with the given token, the record is always written, even with an unchanged deadline:
-- replicas confirm only what is written.
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: HGET twice, TIME, HSET and at times PEXPIREAT; beside a queue HMGET in place of an HGET,
-- and at most one HGET more; otherwise a bounded number of calls.

-- @include constants

-- Fast path: no waiter can be granted permits.
-- @include fast/renew_args
local kept_permits = tonumber(ARGV[4])
if is_fast_path and #ARGV == 5 and kept_permits and kept_permits >= 1 and kept_permits <= MAX_PERMITS and kept_permits % 1 == 0 then
  local line_prefix, flag, holder_field, record = '2P', sub(line, 45, 45), 'r:' .. caller, nil
  local _, digits_end = find(line, '^2P%d+')
  local limit, used, holders = string.match(line, '^([1-9]%d*) (%d+) (%d+)$', 46)
  if not digits_end or digits_end < 46 or not holders or flag > '3' then -- luacheck: ignore 542
    -- Malformed: the slow path decides.
  elseif flag >= '2' then
    local other_fields = { holder_field }
-- @include fast/permit_queue
    if not head and waiters == 0 or head and is_queue_valid() and blocked_head(head, redis.call('HGET', KEYS[1], 'q:' .. head)) then
      record = queue_values[5]
    end
  else
    record = redis.call('HGET', KEYS[1], holder_field)
  end
  local record_permits = record and string.match(record, '^%d+ (%d+)$', 31)
  if not record_permits or tonumber(record_permits) > kept_permits then
    record = nil -- malformed, or it has too many: the slow path decides
  end
-- @include fast/renew
end

-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 5 then
  return argument_error('number of keys or arguments')
elseif not is_id(caller) then
  return argument_error('id')
elseif not integer_arg(3, 1, MAX_DURATION) then
  return argument_error('lease')
elseif not integer_arg(4, 1, MAX_PERMITS) then
  return argument_error('permits')
elseif not integer_arg(5, 1, MAX_SAFE_INTEGER) then
  return argument_error('token')
end

-- @include field_cache
-- @include semaphore_state

return run(function()
  local load_error = load({ 'r:' .. caller })
  if load_error then
    return load_error
  end
  local alive, _, deadline, token, index, permits = find_reader(caller)
  local status = alive and 'other' or 'not_held'
  if alive and token == expected_token then
    status, deadline = 'renewed', math.max(deadline, now_ms + lease)
    set_permits(caller, 'h', deadline, token, index, permits, math.min(kept_permits, permits))
  end
  if get('waiters') then
    finish(true)
  else
    flush(true)
  end
  if alive then
    return ok_reply(status, has_more_work, token, deadline)
  end
  return ok_reply(status, has_more_work)
end)
