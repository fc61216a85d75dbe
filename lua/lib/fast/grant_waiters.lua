-- The fast path of grant_waiters: no waiter can be granted, or the next readers are
-- (grant_readers.lua).
--
-- The conditions, in this order: the call and the line are well formed; the clock is past the last
-- token; cached readers are not being recalled; the holders block all waiters (queue_blocked.lua),
-- or nobody waits and no reader is expired, or readers hold, no reader is expired, no upgrader
-- waits, and no holder is revoked. Otherwise the slow path decides. While readers are forced out,
-- the lower bound of their deadlines is 0.
local sub, find = string.sub, string.find
local is_fast_path = #KEYS == 1
  and #ARGV == 2
  and line
  and #line == 31
  and find(line, '^2Q%d+$')
  and #now_us_text == 16
  and sub(line, 16) < now_us_text
  and #ARGV[2] <= 8
  and find(ARGV[2], '^[%w_-]+$')
if is_fast_path then
  local other_fields = { 'readers', 'revoked_up_to', 'recall_cursor' }
-- @include fast/read_queue
  local readers, revoked, recall = unpack(queue_values, 11)
  readers = tonumber(readers or 0)
  local stored_expiry, min_deadline, new_fields, removed_fields, new_expiry, reply =
    tonumber(sub(line, 3, 15)), tonumber(read_min or ''), nil, {}, nil, nil
  if not recall then
-- @include fast/first_waiter
-- @include fast/queue_blocked
    local are_readers_alive = is_queue_valid and not upgrader and min_deadline and min_deadline > now_ms
    if is_blocked or are_readers_alive and waiters == 0 and not (writers_head or readers_head) then
      return 'done ' .. now_ms_text .. ' 0'
    elseif are_readers_alive and not (writer or revoked) and readers and readers_head then
-- @include fast/grant_readers
    end
  end
  if new_fields then
-- @include fast/write_fields
-- @include fast/notify
    if not handoff.undelivered[1] then
      return 'done ' .. now_ms_text .. ' ' .. handoff.has_more_work
    end
  end
end
