-- Turns the read of an acquisition into a write with a new token. A repeated call is the poll of
-- the waiting reader. One reader at a time can wait for an upgrade: it goes before all waiting
-- writers, and no new reader is granted meanwhile.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id                   ARGV[4]  lease, ms
-- ARGV[5]  token of the read    ARGV[6]  hash tag of the slot's channels
-- and for a waiter:
-- ARGV[7]  queue terms, as in acquire_write.lua; the most waiters are ignored
--
-- Reply: status, now, more
--   granted   the id, token, deadline. If it writes already, its record is written again, so that
--             replicas can confirm it; with a new token if it still has the token of the read
--   queued    0, number of other readers, lower bound of their deadlines (ms)
--   busy      as queued: other readers hold, and the call does not wait
--   conflict  another reader waits for its upgrade: one of the two must release
--   revoked   its lease will not be extended, and so not turned into a write; its wait has ended
--   not_held  it does not read with this token; nothing was changed
--   too_late  nothing: the call came after not_after
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS, OOM.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude
-- @include acquire_args

local request, args_error = parse_acquire_args(6)
if args_error then
  return args_error
elseif request.not_after > 0 and now_ms > request.not_after then
  return ok_reply('too_late', 0)
end
local needed_fields = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'r:' .. request.id, 'cached_readers' }

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters
-- @include recall

caller_id = request.id

local function wait_for_readers()
  local waiter = load_waiter(caller_id)
  if not waiter then
    waiter = { id = caller_id, mode = 'u', previous = '-', next = '-', ticket = 0, fairness = 'f', queued_at = now_ms }
    put('upgrader', caller_id)
    count_waiter(waiter, 1)
  end
  waiter.last_seen, waiter.ttl, waiter.lease, waiter.window = now_ms, request.ttl, request.lease, request.window
  waiter.node, waiter.tag = request.node, request.tag
  save_waiter(waiter)
end

local function become_writer(index, deadline)
  local token = next_token()
  deadline = math.max(deadline, now_ms + request.lease)
  remove_reader(caller_id, index)
  set_writer(caller_id, 'h', deadline, token)
end

return run(function()
  local load_error = load(needed_fields)
  if load_error then
    return load_error
  end
  local alive, reader_state, read_deadline, reader_token, index = find_reader(caller_id)
  local own_cached = alive and is_cached(reader_state) and 1 or 0
  local upgrader = current_upgrader()
  local status, acquires
  if alive and reader_token == request.token then
    if upgrader and upgrader.id ~= caller_id then
      status = 'conflict'
    elseif reader_token <= number('revoked_up_to') then
      status = 'revoked'
    elseif not has_other_readers(1) then
      if upgrader then
        put('upgrader', false)
        delete_waiter(upgrader)
        count_waiter(upgrader, -1)
      end
      become_writer(index, read_deadline)
      acquires = not upgrader
    elseif request.can_wait then
      local terms_error = parse_queue_terms(request)
      if terms_error then
        return terms_error
      end
      wait_for_readers()
      status = 'queued'
      acquires = not upgrader
    else
      status = 'busy'
    end
  end
  finish(not acquires, function()
    -- Recalls the cached readers that block the upgrade. A waiting upgrade recalls the cached
    -- readers one after another. A try recalls once, and only if no other readers block the
    -- upgrade.
    local waiter = load_waiter(caller_id)
    if waiter or (status == 'busy' and number('cached_readers') - own_cached == number('readers') - 1) then
      recall_readers(waiter)
    end
  end)
  notify_holders(request.tag, 'w')

  -- The caller writes. If it did so before this call, this may be the claim, and the record is
  -- written again in any case, so that replicas can confirm it.
  local id, writer_state, writer_deadline, writer_token = current_writer()
  if id == caller_id then
    if not alive then
      if writer_token == request.token then -- a failover has lost the downgrade before this upgrade
        if writer_token <= number('revoked_up_to') then
          return ok_reply('revoked', has_more_work)
        end
        writer_token = next_token()
      end
      writer_deadline = writer_state == 'g' and deadline_after_renewal(writer_deadline, writer_token, request.lease)
        or writer_deadline
      set_writer(caller_id, writer_state == 'g' and 'h' or writer_state, writer_deadline, writer_token)
      flush(true)
    end
    return ok_reply('granted', has_more_work, caller_id, writer_token, writer_deadline)
  elseif status == 'conflict' or status == 'revoked' then
    return ok_reply(status, has_more_work)
  elseif status then
    return ok_reply(status, has_more_work, 0, number('readers') - 1, number('read_min'))
  end
  return ok_reply('not_held', has_more_work)
end)
