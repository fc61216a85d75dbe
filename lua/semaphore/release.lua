-- Releases the permits of an acquisition, or ends its wait. Affects no other acquisition.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name    ARGV[2]  id
--
-- Reply: status, now, more; now is 0 if the script did not read the time
--   released    its record was there, so its permits were granted to no other acquisition. Its
--               lease may have expired
--   left_queue  it waited, and no longer does
--   not_found   the semaphore has no record of it
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: if nobody waits HGET twice, HDEL, HSET, HDEL, and two HGET more for a holder that is not
-- the last of the array; otherwise a bounded number of calls.

-- @include constants

-- Fast path: the queue is empty, and either permits stay held or the key's expiry is right.
local line = redis.pcall('HGET', KEYS[1], 's')
local is_fast_path = #KEYS == 1 and #ARGV == 2 and line and #line > 45 and string.find(line, '^2P%d+')
if is_fast_path then
  local flag, limit, used, holders = string.match(line, '^([01])(%d+) (%d+) (%d+)$', 45)
  local own_field, last_index = 'r:' .. ARGV[2], holders and holders - 1
  local own_record = holders and redis.call('HGET', KEYS[1], own_field)
  local index, permits = nil, nil
  if own_record then
    index, permits = string.match(own_record, '^(%d+) (%d+)$', 31)
  end
  local new_fields, removed_fields
  if permits and (last_index > 0 or flag == '0') then
    new_fields = { 's', string.sub(line, 1, 45) .. limit .. ' ' .. used - permits .. ' ' .. last_index }
    removed_fields = { own_field, 'i:' .. last_index }
    if index ~= last_index .. '' then
      -- The last holder fills its place.
      local moved_id = redis.call('HGET', KEYS[1], removed_fields[2])
      local moved_record = moved_id and redis.call('HGET', KEYS[1], 'r:' .. moved_id)
      local moved_permits = moved_record and string.match(moved_record, ' %d+$', 31)
      if moved_permits then
        new_fields[3], new_fields[4], new_fields[5], new_fields[6] =
          'r:' .. moved_id, string.sub(moved_record, 1, 30) .. index .. moved_permits, 'i:' .. index, moved_id
      else
        new_fields = nil
      end
    end
  end
  if new_fields then
    -- After an HDEL the server does not check its memory. The HDEL stops a user who may not delete.
    local reply = redis.pcall('HDEL', KEYS[1], '-')
    if type(reply) == 'number' then
      reply = redis.pcall('HSET', KEYS[1], unpack(new_fields))
    end
    if type(reply) == 'number' then
      reply = redis.pcall('HDEL', KEYS[1], unpack(removed_fields))
    end
    if type(reply) ~= 'number' then
      return { err = string.match(reply.err, ERROR_PATTERN) or 'ERR ' .. reply.err }
    end
    return 'released 0 0'
  end
end

-- @include clock
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return argument_error('number of keys or arguments')
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
  local waiter, status = load_waiter(ARGV[2]), 'not_found'
  if waiter then
    unlink(waiter)
    status = 'left_queue'
  end
  local alive, _, _, _, index = find_reader(ARGV[2])
  if alive ~= nil then
    remove_reader(ARGV[2], index)
    status = 'released'
  end
  finish(true)
  return ok_reply(status, has_more_work)
end)
