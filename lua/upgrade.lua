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
-- @include head
-- @include prelude
-- @include demand

local demand, bad = read_demand(6)
if bad then
  return bad
elseif demand.not_after > 0 and now > demand.not_after then
  return reply('stale', 0)
end
local names = { 'writer', 'readers', 'readers_head', 'writers_head', 'upgrader', 'r:' .. demand.id, 'cached' }

-- @include hash
-- @include line
-- @include flush
-- @include waiters
-- @include readers
-- @include pump
-- @include recall

me = demand.id

local function wait_for_readers()
  local entry = waiter(me)
  if not entry then
    entry = { id = me, mode = 'u', previous = '-', next = '-', ticket = 0, fairness = 'f', since = now }
    put('upgrader', me)
    tally(entry, 1)
  end
  entry.seen, entry.ttl, entry.lease, entry.window = now, demand.ttl, demand.lease, demand.window
  entry.node, entry.tag = demand.node, demand.tag
  save(entry)
end

local function become_writer(index, deadline)
  local token = mint()
  deadline = math.max(deadline, now + demand.lease)
  remove_reader(me, index)
  write(me, 'h', deadline, token)
end

return answer(function()
  local strange = open(names)
  if strange then
    return strange
  end
  local alive, reads, ends, token, index = reading(me)
  local own = alive and is_cached(reads) and 1 or 0
  local upgrader = upgrading()
  local status, takes
  if alive and token == demand.token then
    if upgrader and upgrader.id ~= me then
      status = 'conflict'
    elseif token <= number('revoked') then
      status = 'revoked'
    elseif not blocked_by_readers(1) then
      if upgrader then
        put('upgrader', false)
        forget(upgrader)
        tally(upgrader, -1)
      end
      become_writer(index, ends)
      takes = not upgrader
    elseif demand.waits then
      local bad_place = read_place(demand)
      if bad_place then
        return bad_place
      end
      wait_for_readers()
      status = 'queued'
      takes = not upgrader
    else
      status = 'refused'
    end
  end
  settle(not takes, function()
    -- Cached readers in its way are asked for the lock: all in turn while it waits, once if it
    -- tries and nobody else is in its way.
    local mine = waiter(me)
    if mine or (status == 'refused' and number('cached') - own == number('readers') - 1) then
      recall_readers(mine)
    end
  end)
  tell_holders(demand.tag, 'w')

  -- It writes by now. If it did so before this call, this may be the claim; and the record is
  -- written again in any case, so that replicas can confirm it.
  local id, state, deadline, minted = writing()
  if id == me then
    if not alive then
      if minted == demand.token then -- a failover has lost the downgrade before this upgrade
        if minted <= number('revoked') then
          return reply('revoked', more)
        end
        minted = mint()
      end
      deadline = state == 'g' and claimed_until(deadline, minted, demand.lease) or deadline
      write(me, state == 'g' and 'h' or state, deadline, minted)
      flush(true)
    end
    return reply('granted', more, me, minted, deadline)
  elseif status == 'conflict' or status == 'revoked' then
    return reply(status, more)
  elseif status then
    return reply(status, more, 0, number('readers') - 1, number('read_min'))
  end
  return reply('lost', more)
end)
