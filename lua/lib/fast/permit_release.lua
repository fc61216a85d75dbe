-- The fast path of a release beside the waiters of a semaphore, or after a queue that has ended:
-- the next waiters are granted the permits (permit_grants.lua), the head cannot be granted, or the
-- semaphore is idle.
--
-- The conditions, in this order: the clock is past the last token; the queue is valid, and no
-- holder has expired; the caller does not wait, and holds; those of the grants. Otherwise
-- `new_fields` stays nil and the slow path decides.
-- @include server_time
local other_fields = { 'q:' .. caller, own_field }
-- @include fast/permit_queue
local own_waiter, own_record = unpack(queue_values, 5)
if #now_us_text == 16 and sub(line, 16, 31) < now_us_text and is_queue_valid() and own_record and not own_waiter then
  local stored_expiry = sub(line, 3, 15) + 0
  local index, permits = string.match(own_record, '^(%d+) (%d+)$', 31)
-- @include fast/remove_permits
  removed_fields = { own_field }
  if removed and (head or last_index > 0) then
    local held, min_deadline = used - permits, last_index > 0 and sub(line, 32, 44) + 0
    index = last_index
-- @include fast/permit_grants
  elseif removed and stored_expiry >= now_ms + KEY_GRACE and stored_expiry <= now_ms + IDLE_KEY_TTL then
    new_fields = { 's', sub(line, 1, 31) .. '00000000000000' .. limit .. ' 0 0' }
    removed_fields, success_reply = { own_field, 'i:0', 'ticket', 'lapsed_clients' }, 'released ' .. now_ms_text .. ' 0'
  end
end
