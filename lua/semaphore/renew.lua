-- Makes the lease of permits longer, never shorter; for permits that were granted out of the queue
-- it is also the claim.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name    ARGV[2]  id                   ARGV[3]  lease, ms
--
-- Reply: status, now, more
--   renewed   token, deadline
--   lost      it does not hold
-- The holder's record is written in any case, also with the deadline that it has: replicas confirm
-- only what is written.
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: where nobody waits HGET twice, TIME, HSET and at times PEXPIREAT; else a bounded number of
-- calls.

-- @include constants

-- Nobody waits: the usual case, without the machinery below.
-- @include renewal
if simple then
  local shape, flag, field, text = '2P', sub(line, 45, 45), 'r:' .. caller, nil
  local _, digits = find(line, '^2P%d+')
  if digits and digits > 45 and flag <= '1' and find(line, '^ %d+ %d+$', digits + 1) then
    text = redis.call('HGET', KEYS[1], field)
  end
  if text and not find(text, '^%d+ %d+$', 31) then
    text = nil -- malformed, as will be found
  end
-- @include renewed
end

-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 3 then
  return refuse('count')
elseif not is_id(caller) then
  return refuse('id')
elseif not whole(3, 1, LONGEST) then
  return refuse('lease')
end

-- @include hash
-- @include semaphore

return answer(function()
  local strange = open({ 'r:' .. caller })
  if strange then
    return strange
  end
  local alive, _, deadline, token, index, permits = reading(caller)
  if alive then
    deadline = math.max(deadline, now + lease)
    put_reader(caller, 'h', deadline, token, index, permits)
  end
  if get('waiters') then
    settle(true)
  else
    flush(true)
  end
  if alive then
    return reply('renewed', more, token, deadline)
  end
  return reply('lost', more)
end)
