-- Ends the lease of an acquisition, or its wait, or lets its write stand until a given time.
-- Affects no other acquisition.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  id
-- ARGV[3]  wait, to end only the wait: an upgrader still reads; or a time, ms, at most MAX_DURATION
--          ahead: if the acquisition writes, its write ends then, and no renewal extends it. A
--          revoked write ends at its deadline, if that is earlier
--
-- Reply: status, now, more; now is 0 if the script did not read the time
--   released         its record was there, so the lock was granted to no other acquisition against
--                    it. Its lease may have expired
--   kept             token, deadline: it writes until the deadline (only with a time)
--   left_queue       it waited, and no longer does
--   force_released   its record was there, but a forced release had ended the lease
--   not_found        the lock has no record of it
--   upgrade_granted  token, deadline: there is no wait to end, because the upgrade was granted
--                    (only with wait)
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: of a sole holder HGET, HSET; of one of several readers HGET twice, HDEL, HSET, HDEL, and
-- two HGET more for a reader that is not the last of the array; of the last holder beside a queue
-- HGET, TIME, HMGET, HDEL, HSET, HDEL, with a writer next HGET once or twice, SPUBLISH and at times
-- PEXPIREAT; otherwise a bounded number of calls.

-- @include constants

-- Fast paths. If the line has not changed since the grant, nobody else has held the lock: there is
-- no hand-off, and the expiry stays. Others are in fast/release.lua, beside a queue.
local line, caller = redis.pcall('HGET', KEYS[1], 's'), ARGV[2]
local time_reply, now_us_text, now_ms_text, now_ms, handoff
local success_reply = 'released 0 0'
local is_fast_path = #ARGV == 2 and #KEYS == 1 and line and #line > 30
if is_fast_path then
  local sub, find = string.sub, string.find
  local shape, new_fields, removed_fields, new_expiry, reply = sub(line, 2, 2), nil, nil, nil, nil
  local _, digits_end = find(line, '^2%u%d+')
  if not digits_end then -- luacheck: ignore 542
    -- Malformed: the slow path decides.
  elseif digits_end > 44 and (shape == 'W' or shape == 'R') then
    -- No flags, and the caller's id.
    if sub(line, 46) == caller and sub(line, 45, 45) == '0' and #caller >= 12 then
      local free_line = '2F' .. sub(line, 3, 31)
      reply = redis.pcall('HSET', KEYS[1], 's', free_line)
      if reply == 0 then
        return 'released 0 0'
      end
      new_fields = { 's', free_line }
    end
  elseif shape == 'S' and digits_end == #line and find(line, '^[0-3][1-9]', 45) then
    local own_field = 'r:' .. caller
    local own_record, last_index = redis.call('HGET', KEYS[1], own_field), (tonumber(sub(line, 46)) or 0) - 1
    local index = own_record and sub(own_record, 31)
    local flag = sub(line, 45, 45)
    if index and last_index == 0 and (flag == '0' or flag == '2') then
      new_fields = { 's', '2F' .. sub(line, 3, 31) }
      removed_fields = flag == '0' and { own_field, 'i:0' } or { own_field, 'i:0', 'ticket', 'reader_phase', 'lapsed_clients' }
    elseif index and last_index > 0 then
      new_fields, removed_fields = { 's', sub(line, 1, 45) .. last_index }, { own_field, 'i:' .. last_index }
-- @include fast/remove_reader
    end
  elseif shape == 'Q' and digits_end == 31 and #line == 31 then
-- @include fast/release
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

local wait_only = ARGV[3] == 'wait'
local keep_until = ARGV[3] and not wait_only and integer_arg(3, 1, now_ms + MAX_DURATION)
if #KEYS ~= 1 or (#ARGV ~= 2 and #ARGV ~= 3) then
  return argument_error('number of keys or arguments')
elseif ARGV[3] and not wait_only and not keep_until then
  return argument_error('wait or time')
elseif not is_id(caller) then
  return argument_error('id')
end

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters

local function remove_own_read(id)
  local alive, _, _, token, index = find_reader(id)
  if alive ~= nil then
    local forced = number('forced_up_to')
    remove_reader(id, index)
    return token > forced and 'released' or 'force_released'
  end
end

local function remove_own_write(id)
  local record = get('writer')
  if record then
    local _, _, _, writer_id = decode_record(record)
    if writer_id == id then
      start_reader_phase()
      return 'released'
    end
  end
end

-- Lets the caller's write stand until `keep_until`. The write counts as revoked, so that no renewal
-- that is under way extends it. Returns token and deadline.
local function keep_own_write()
  local record = get('writer')
  if not record then
    return
  end
  local state, deadline, token, id = decode_record(record)
  if id == caller and math.min(deadline, keep_until) > now_ms then
    local revoked_up_to = number('revoked_up_to')
    deadline = token <= revoked_up_to and math.min(deadline, keep_until) or keep_until
    put('revoked_up_to', math.max(revoked_up_to, token))
    set_writer(id, (is_cached(state) or state == 'b') and 'b' or 'h', deadline, token)
    return token, deadline
  end
end

local function leave_queue(id)
  local waiter = load_waiter(id)
  if not waiter then
    return
  elseif waiter.mode == 'u' then
    put('upgrader', false)
    delete_waiter(waiter)
    count_waiter(waiter, -1)
  else
    unlink(waiter)
  end
  return 'left_queue'
end

return run(function()
  local load_error = load({ 'writer', 'readers', 'waiters', 'r:' .. caller, 'read_min', 'cached_readers' })
  if load_error then
    return load_error
  end
  if handoff then
-- @include fast/revert_grants
    finish(true)
    return ok_reply('released', has_more_work)
  end
  if wait_only then
    local id, _, deadline, token = current_writer()
    if id == caller then
      return ok_reply('upgrade_granted', 0, token, deadline)
    end
  end
  if keep_until then
    local token, deadline = keep_own_write()
    if token then
      flush(true)
      return ok_reply('kept', 0, token, deadline)
    end
  end
  local queue_status = leave_queue(caller)
  local lease_status = not wait_only and (remove_own_write(caller) or remove_own_read(caller))
  finish(true)
  return ok_reply(lease_status or queue_status or 'not_found', has_more_work)
end)
