-- The fast path of a release beside a queue. After a write the queue is empty, or the lock is
-- granted to the next writer (grant_writer.lua) or the next readers (grant_readers.lua). After a
-- read the queue is empty, other readers still hold, or the lock is granted to the next writer. The
-- same without a queue, beside cached readers.
--
-- The conditions, in this order: the clock is past the last token; the queue is valid; no upgrader
-- waits; the caller does not wait, and holds; no holder is revoked, if readers are granted; beside
-- readers, the holders block all waiters (queue_blocked.lua), or nobody waits, no reader is
-- expired, and a cached one is left. Otherwise `new_fields` stays nil and the slow path decides.
-- While readers are forced out, the lower bound of their deadlines is 0: then they block no waiter.
-- @include server_time
local own_field = 'r:' .. caller
local other_fields = { 'readers', 'ticket', 'revoked_up_to', 'q:' .. caller, own_field }
-- @include fast/read_queue
local readers, last_ticket, revoked, own_waiter, own_reader = unpack(queue_values, 11)
readers = tonumber(readers or 0)
local stored_expiry, frees_lock = tonumber(sub(line, 3, 15)), false
if #now_us_text ~= 16 or sub(line, 16) >= now_us_text or not is_queue_valid or not readers or upgrader or own_waiter then -- luacheck: ignore 542
  -- The slow path decides.
elseif writer and readers == 0 and sub(writer, 31) == caller then
  removed_fields, phase, frees_lock = { 'writer' }, tonumber(last_ticket or ''), not readers_head
  if readers_head and phase and not revoked then
    local min_deadline = nil
-- @include fast/first_waiter
-- @include fast/grant_readers
    if new_fields then
      new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 'reader_phase', phase
    end
  end
elseif not writer and own_reader and find(own_reader, '^[ghbkc]%d+$') then
  local last_index, index, are_readers_alive = readers - 1, sub(own_reader, 31), (tonumber(read_min) or 0) > now_ms
  local was_cached = find(own_reader, '^[kc]')
  local cached_left = (tonumber(cached or 0) or 0) - (was_cached and 1 or 0)
  removed_fields = { own_field, 'i:' .. last_index }
-- @include fast/first_waiter
-- @include fast/queue_blocked
  is_blocked = is_blocked or waiters == 0
  frees_lock = is_blocked and last_index == 0 and index == '0' and are_readers_alive and cached_left == 0
  if is_blocked and last_index > 0 and (waiters > 0 and cached_left >= 0 or cached_left > 0 and are_readers_alive) then
    new_fields, success_reply = { 'readers', last_index }, 'released ' .. now_ms_text .. ' 0'
-- @include fast/remove_reader
    if was_cached and new_fields and cached_left > 0 then
      new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 'cached_readers', cached_left
    elseif was_cached then
      removed_fields[3], removed_fields[4] = 'cached_readers', 'recall_cursor'
    end
  end
  if frees_lock then
    removed_fields[3], removed_fields[4], removed_fields[5] = 'readers', 'read_min', 'sweep'
    if was_cached then
      removed_fields[6], removed_fields[7] = 'cached_readers', 'recall_cursor'
    end
  end
end
if frees_lock and writers_head then
-- @include fast/grant_writer
elseif frees_lock and waiters == 0 and stored_expiry >= now_ms + KEY_GRACE and stored_expiry <= now_ms + IDLE_KEY_TTL then
  new_fields = { 's', '2F' .. sub(line, 3, 31) }
  for _, field in ipairs({ 'ticket', 'reader_phase', 'lapsed_clients', 'revoked_up_to', 'forced_up_to' }) do
    removed_fields[#removed_fields + 1] = field
  end
end
