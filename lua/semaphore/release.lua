-- Ends whatever an acquisition has of a semaphore: its permits, or its place in the queue. Nobody
-- else's.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name    ARGV[2]  id
--
-- Reply: status, now, more; now is 0 where the time was not asked for
--   released   its record stood: nobody was granted its permits meanwhile. Its lease may be over
--   left       it waited, and no longer does
--   absent     the semaphore knows nothing of it
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: where nobody waits HGET twice, HDEL, HSET, HDEL, and two HGET more for a holder that is not
-- the last of the array; else a bounded number of calls.

-- @include constants

-- Fast path: the queue is empty, and either permits stay held or the key's life is right.
local line = redis.pcall('HGET', KEYS[1], 's')
local simple = #KEYS == 1 and #ARGV == 2 and line and #line > 45 and string.find(line, '^2P%d+')
if simple then
  local flag, limit, used, holders = string.match(line, '^([01])(%d+) (%d+) (%d+)$', 45)
  local mine, last = 'r:' .. ARGV[2], holders and holders - 1
  local record = holders and redis.call('HGET', KEYS[1], mine)
  local index, permits = nil, nil
  if record then
    index, permits = string.match(record, '^(%d+) (%d+)$', 31)
  end
  local set, gone
  if permits and (last > 0 or flag == '0') then
    set = { 's', string.sub(line, 1, 45) .. limit .. ' ' .. used - permits .. ' ' .. last }
    gone = { mine, 'i:' .. last }
    if index ~= last .. '' then
      -- The last holder fills the hole.
      local moved = redis.call('HGET', KEYS[1], gone[2])
      local other = moved and redis.call('HGET', KEYS[1], 'r:' .. moved)
      local its_permits = other and string.match(other, ' %d+$', 31)
      if its_permits then
        set[3], set[4], set[5], set[6] = 'r:' .. moved, string.sub(other, 1, 30) .. index .. its_permits, 'i:' .. index, moved
      else
        set = nil
      end
    end
  end
  if set then
    -- A full memory refuses nothing after an HDEL, and a user who may not delete stops there.
    local done = redis.pcall('HDEL', KEYS[1], '-')
    if type(done) == 'number' then
      done = redis.pcall('HSET', KEYS[1], unpack(set))
    end
    if type(done) == 'number' then
      done = redis.pcall('HDEL', KEYS[1], unpack(gone))
    end
    if type(done) ~= 'number' then
      return { err = string.match(done.err, ERROR_PATTERN) or 'ERR ' .. done.err }
    end
    return 'released 0 0'
  end
end

-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return argument_error('count')
elseif not is_id(ARGV[2]) then
  return argument_error('id')
end

-- @include field_cache
-- @include semaphore_state

return run(function()
  local load_error = load({ 'r:' .. ARGV[2], 'q:' .. ARGV[2] })
  if load_error then
    return load_error
  end
  local entry, status = load_waiter(ARGV[2]), 'absent'
  if entry then
    unlink(entry)
    status = 'left'
  end
  local alive, _, _, _, index = find_reader(ARGV[2])
  if alive ~= nil then
    remove_reader(ARGV[2], index)
    status = 'released'
  end
  finish(true)
  return ok_reply(status, has_more_work)
end)
