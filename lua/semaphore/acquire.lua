-- Takes permits of a semaphore, or a place in its queue; called again, it is a waiter's poll. The
-- first one makes the semaphore, with its limit. Idempotent for one acquisition.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name    ARGV[2]  not_after, server ms (0: none)
-- ARGV[3]  id                   ARGV[4]  lease, ms
-- ARGV[5]  permits              ARGV[6]  limit, which must be the semaphore's
-- ARGV[7]  hash tag of the slot's channels
-- and for a waiter:
-- ARGV[8]  its place, as of acquire_write.lua
-- ARGV[9]  the ticket that it was given, from its second call on
--
-- Reply: status, now, more, then
--   granted  its id, token, deadline, as of acquire_write.lua
--   queued   ticket, waiters ahead at the allowed, a lower bound of when a holder's lease ends
--   refused  that bound: a try, and too few permits are left, or others wait
--   limit    the semaphore's limit: it is another one, or was lowered below what a waiter wants,
--            which waits no longer. Nothing was done else
--   full     waiters
--   stale    nothing: it came past not_after, and nothing was done
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS, OOM.
-- Cost: where permits are left and nobody waits HGET, TIME, HSET, at times PEXPIREAT, and HGET from
-- the second holder on (EXISTS and PEXPIREAT for a new key); else a bounded number of calls,
-- whatever the number of holders and waiters.

-- @include constants

-- Fast path: permits are left, nobody waits, and there is no dead holder to look for.
-- @include fast/well_formed
local wanted, allowed = tonumber(args[5]), tonumber(args[6])
local simple = well_formed and given < 9 and wanted and allowed and wanted >= 1 and wanted <= allowed and allowed <= MAX_PERMITS and not find(args[5] .. args[6], '%D')
local _, digits = nil, nil
if simple and line then
  _, digits = find(line, '^2P%d+')
end
if simple and (not line or (digits and digits > 44 and sub(line, 16, 31) < stamp)) then
-- @include fast/lease
  local mine = 'r:' .. caller
  local taken, more
  if not line then
    if redis.pcall('EXISTS', KEYS[1]) == 0 then
      taken = '2P' .. life .. stamp .. ends .. long .. allowed .. ' ' .. wanted .. ' 1'
      more = { mine, 'h' .. ends .. stamp .. '0 ' .. wanted, 'i:0', caller }
    end
  else
    local flag, limit, used, holders = string.match(line, '^([01])(%d+) (%d+) (%d+)$', 45)
    local least = sub(line, 32, 44)
    if not holders or tonumber(limit) ~= allowed or used + wanted > allowed then
      taken = nil -- a queue, another limit, too few permits
    elseif holders == '0' or (least > moment and holders ~= LISTPACK_READERS .. '' and not redis.call('HGET', KEYS[1], mine)) then
      if long == '1' then
        flag = '1'
      end
      if holders == '0' or ends < least then
        least = ends
      end
      taken = '2P' .. life .. stamp .. least .. flag .. limit .. ' ' .. used + wanted .. ' ' .. holders + 1
      more = { mine, 'h' .. ends .. stamp .. holders .. ' ' .. wanted, 'i:' .. holders, caller }
    end
  end
  if taken then
-- @include fast/take
  end
end

-- @include prelude
-- @include demand
-- @include hash
-- @include semaphore

-- Returns an error reply if they are malformed.
local function read_permits(asked)
  asked.permits, asked.most = whole(5, 1, MAX_PERMITS), whole(6, 1, MAX_PERMITS)
  if not asked.permits then
    return refuse('permits')
  elseif not asked.most or asked.most < asked.permits then
    return refuse('limit')
  end
  asked.fairness = format('%.0f', asked.permits) -- its place in a waiter's entry
end

local demand, bad = read_demand(7, read_permits)

-- @include place

-- Takes what can be taken, or a place. Returns an error reply, or what `queue` does; and whether
-- the call takes something.
local function begin(entry, alive, index)
  if alive ~= nil then
    remove_reader(me, index) -- its own record, which has run out, stands in its way
  end
  if entry then
    return demand.waits and refresh(entry), false
  elseif demand.ticket > 0 then
    return queue('p'), true
  elseif not first('p') and has_room(demand.permits) then
    add_reader(me, 'h', now + demand.lease, mint(), demand.permits)
    return nil, true
  elseif demand.waits then
    return queue('p'), true
  end
  return nil, false
end

-- Whether the limit is not the caller's. A waiter may go on by the limit that it came with, if it
-- is to get what it wants.
local function is_off_limit(entry)
  local limit = number('limit')
  return demand.permits > limit or (not entry and demand.ticket == 0 and demand.most ~= limit)
end

return answer(function()
  local strange = bad or open({ 'r:' .. demand.id, 'q:' .. demand.id })
  if strange then
    return strange
  elseif demand.not_after > 0 and now > demand.not_after then
    return reply('stale', 0)
  end
  me, thorough = demand.id, demand.waits
  if shape == 'N' then
    put('limit', demand.most)
  end
  local entry, takes = waiter(me), false
  local alive, state, deadline, token, index, permits = reading(me)
  if alive then
    -- The claim of a grant; or it comes again, and the record is written again: `WAIT` counts
    -- replicas only for what the call in front of it has written.
    deadline = state == 'g' and math.max(deadline, now + demand.lease) or deadline
    put_reader(me, 'h', deadline, token, index, permits)
  elseif is_off_limit(entry) then
    if not entry then
      return reply('limit', 0, number('limit'))
    end
    unlink(entry)
    settle(true)
    return reply('limit', more, number('limit'))
  else
    local refused
    refused, takes = begin(entry, alive, index)
    if refused then
      return refused
    end
  end
  settle(not takes)
  entry = waiter(me)
  local holds, _, ends, minted = reading(me)
  if holds then
    return reply('granted', more, me, minted, ends)
  elseif entry then
    local head = linked(get('head')) or malformed('queue')
    return reply('queued', more, entry.ticket, math.max(entry.ticket - head.ticket, 0), number('read_min'))
  end
  return reply('refused', more, number('read_min'))
end)
