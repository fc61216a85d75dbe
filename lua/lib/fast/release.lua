-- The fast path of a release beside a queue. After a write the queue is empty, or the lock is
-- granted to the next writer (grant_writer.lua) or the next readers (grant_readers.lua). After a
-- read the queue is empty, other readers still hold, or the lock is granted to the next writer.
--
-- The conditions, in this order: the clock is past the last token; the queue is valid; no upgrader
-- waits; the caller does not wait, holds, and is not cached; no holder is revoked, if readers are
-- granted; beside readers, the holders block all waiters (queue_blocked.lua). Otherwise
-- `new_fields` stays nil and the slow path decides. While readers are forced out, the lower bound
-- of their deadlines is 0: then they block no waiter.
-- @include server_time
local own_field = 'r:' .. caller
local other_fields = { 'readers', 'ticket', 'revoked', 'q:' .. caller, own_field }
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
-- @include fast/queue_blocked
-- @include fast/grant_readers
    if new_fields then
      new_fields[#new_fields + 1], new_fields[#new_fields + 2] = 'phase', phase
    end
  end
elseif not writer and own_reader and find(own_reader, '^[ghb]%d+$') then
  local last_index, index = readers - 1, sub(own_reader, 31)
  local is_sole_reader = last_index == 0 and index == '0' and (tonumber(read_min) or 0) > now_ms
  removed_fields = { own_field, 'i:' .. last_index }
  if waiters == 0 then
    frees_lock = is_sole_reader
  else
-- @include fast/queue_blocked
    if is_queue_blocked(writers_head, readers_head, fair_count) then
      frees_lock = is_sole_reader
      if last_index > 0 then
        new_fields, success_reply = { 'readers', last_index }, 'released ' .. now_ms_text .. ' 0'
-- @include fast/remove_reader
      end
    end
  end
  if frees_lock then
    removed_fields[3], removed_fields[4], removed_fields[5] = 'readers', 'read_min', 'sweep'
  end
end
if frees_lock and writers_head then
-- @include fast/grant_writer
elseif frees_lock and waiters == 0 and stored_expiry >= now_ms + KEY_GRACE and stored_expiry <= now_ms + IDLE_KEY_TTL then
  new_fields = { 's', '2F' .. sub(line, 3, 31) }
  for _, field in ipairs({ 'ticket', 'phase', 'lapsed', 'revoked', 'forced' }) do
    removed_fields[#removed_fields + 1] = field
  end
end
