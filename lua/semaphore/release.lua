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
-- Cost: with an empty queue HGET twice, HDEL, HSET, HDEL, and two HGET more unless the holder is
-- the last of the array; beside a queue HGET, TIME, HMGET, HDEL, HSET, HDEL, an HGET for each
-- waiter that is granted permits and at most four more, SPUBLISH for each client, and at times
-- PEXPIREAT; otherwise a bounded number of calls.

-- @include constants

-- Fast paths: there is no queue, and either permits stay held or the key's expiry is right. For the
-- one beside a queue see fast/permit_release.lua.
local line, caller = redis.pcall('HGET', KEYS[1], 's'), ARGV[2]
local time_reply, now_us_text, now_ms_text, now_ms, handoff
local success_reply = 'released 0 0'
local is_fast_path = #KEYS == 1 and #ARGV == 2 and line and #line > 45 and string.find(line, '^2P%d+ %d+ %d+$')
if is_fast_path then
  local sub, find = string.sub, string.find
  local flag, limit, used, holders = string.match(line, '^([0-3])([1-9]%d*) (%d+) (%d+)$', 45)
  local own_field, last_index, new_fields, removed_fields, new_expiry, reply =
    'r:' .. caller, holders and holders - 1, nil, nil, nil, nil
  if flag and flag >= '2' then
-- @include fast/permit_release
  elseif flag then
    local own_record = redis.call('HGET', KEYS[1], own_field)
    local index, permits = string.match(own_record or '', '^(%d+) (%d+)$', 31)
-- @include fast/remove_permits
    if removed and (last_index > 0 or flag == '0') then
      new_fields = { 's', sub(line, 1, 45) .. limit .. ' ' .. used - permits .. ' ' .. last_index, unpack(moved_fields) }
      removed_fields = { own_field, 'i:' .. last_index }
    end
  end
  if new_fields then
-- @include fast/write_fields
    if not handoff then
      return success_reply
    end
-- @include fast/notify
    if not handoff.undelivered[1] then
      return 'released ' .. now_ms_text .. ' ' .. handoff.has_more_work
    end
  end
end

if not time_reply then
-- @include server_time
end
-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 2 then
  return argument_error('number of keys or arguments')
elseif not is_id(caller) then
  return argument_error('id')
end

-- @include field_cache
-- @include semaphore_state

return run(function()
  local load_error = load({ 'r:' .. caller, 'q:' .. caller })
  if load_error then
    return load_error
  end
  if handoff then
-- @include fast/revert_grants
    finish(true)
    return ok_reply('released', has_more_work)
  end
  local waiter, status = load_waiter(caller), 'not_found'
  if waiter then
    unlink(waiter)
    status = 'left_queue'
  end
  local alive, _, _, _, index = find_reader(caller)
  if alive ~= nil then
    remove_reader(caller, index)
    status = 'released'
  end
  finish(true)
  return ok_reply(status, has_more_work)
end)
