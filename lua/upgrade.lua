-- Turns the read of an acquisition into a write, with a new token; called again, it is the poll
-- of the reader that waits for it. One reader at a time can wait for this: it goes before all
-- waiting writers, and no new reader is let in meanwhile.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id                   ARGV[4]  lease, ms
-- ARGV[5]  token of the read    ARGV[6]  hash tag of the slot's channels
-- and for a waiter:
-- ARGV[7]  its place, as in acquire_write.lua, with 0 for most waiters
--
-- Reply: status, now, more
--   granted    its id, token, deadline; if it writes already, the record is written again, so that
--              replicas can confirm it, and with a new token if it writes with that of the read
--   queued     0, other readers, the earliest that one of them ends (ms, a lower bound)
--   refused    the same: other readers hold, and it was not to wait
--   conflict   another reader waits to be upgraded: one of the two must release
--   revoked    its lease will not be made longer, and so not turned into a write; its wait has
--              ended
--   lost       it does not read with this token; nothing was done
--   stale      nothing: it came past not_after
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS, OOM.
-- Cost: a bounded number of calls.

-- @include constants
-- @include read_line
-- @include prelude
-- @include acquire_args

local request, args_error = parse_acquire_args(6)
if args_error then
  return args_error
elseif request.not_after > 0 and now_ms > request.not_after then
  return ok_reply('stale', 0)
end
local names = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'r:' .. request.id, 'cached' }

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters
-- @include recall

caller_id = request.id

local function wait_for_readers()
  local entry = load_waiter(caller_id)
  if not entry then
    entry = { id = caller_id, mode = 'u', previous = '-', next = '-', ticket = 0, fairness = 'f', queued_at = now_ms }
    put('upgrader', caller_id)
    count_waiter(entry, 1)
  end
  entry.last_seen, entry.ttl, entry.lease, entry.window = now_ms, request.ttl, request.lease, request.window
  entry.node, entry.tag = request.node, request.tag
  save_waiter(entry)
end

local function become_writer(index, deadline)
  local token = next_token()
  deadline = math.max(deadline, now_ms + request.lease)
  remove_reader(caller_id, index)
  set_writer(caller_id, 'h', deadline, token)
end

return run(function()
  local load_error = load(names)
  if load_error then
    return load_error
  end
  local alive, reads, ends, token, index = find_reader(caller_id)
  local own = alive and is_cached(reads) and 1 or 0
  local upgrader = current_upgrader()
  local status, takes
  if alive and token == request.token then
    if upgrader and upgrader.id ~= caller_id then
      status = 'conflict'
    elseif token <= number('revoked') then
      status = 'revoked'
    elseif not has_other_readers(1) then
      if upgrader then
        put('upgrader', false)
        delete_waiter(upgrader)
        count_waiter(upgrader, -1)
      end
      become_writer(index, ends)
      takes = not upgrader
    elseif request.can_wait then
      local terms_error = parse_queue_terms(request)
      if terms_error then
        return terms_error
      end
      wait_for_readers()
      status = 'queued'
      takes = not upgrader
    else
      status = 'refused'
    end
  end
  finish(not takes, function()
    -- Cached readers in its way are asked for the lock: all in turn while it waits, once if it
    -- tries and nobody else is in its way.
    local mine = load_waiter(caller_id)
    if mine or (status == 'refused' and number('cached') - own == number('readers') - 1) then
      recall_readers(mine)
    end
  end)
  notify_holders(request.tag, 'w')

  -- It writes by now. If it did so before this call, this may be the claim; and the record is
  -- written again in any case, so that replicas can confirm it.
  local id, state, deadline, minted = current_writer()
  if id == caller_id then
    if not alive then
      if minted == request.token then -- a failover has lost the downgrade before this upgrade
        if minted <= number('revoked') then
          return ok_reply('revoked', has_more_work)
        end
        minted = next_token()
      end
      deadline = state == 'g' and deadline_after_renewal(deadline, minted, request.lease) or deadline
      set_writer(caller_id, state == 'g' and 'h' or state, deadline, minted)
      flush(true)
    end
    return ok_reply('granted', has_more_work, caller_id, minted, deadline)
  elseif status == 'conflict' or status == 'revoked' then
    return ok_reply(status, has_more_work)
  elseif status then
    return ok_reply(status, has_more_work, 0, number('readers') - 1, number('read_min'))
  end
  return ok_reply('lost', has_more_work)
end)
