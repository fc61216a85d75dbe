-- The fast path of a renewal with tokens: of a cached read, or the claim that makes a read cached.
--
-- The conditions, in this order: the tokens are well formed; the caller reads, no writer holds, and
-- no holder is revoked or forced out; the key lives long enough; a claim ends no recall; nobody
-- waits, or no waiter can be granted (queue_blocked.lua). Otherwise `record` stays nil and the slow
-- path decides.
local other_fields = { own_field, 'revoked_up_to', 'forced_up_to', 'recall_cursor' }
-- @include fast/read_queue
local own_record, revoked, forced, recall = unpack(queue_values, 11)
local state, index, cached_count = nil, nil, tonumber(cached or 0)
if #ARGV[6] <= 4 and find(ARGV[6], '^[1-9]%d*$') and ARGV[6] + 0 <= TOKEN_BLOCK
  and own_record and not writer and not revoked and not forced and cached_count then
  state, index = string.match(own_record, '^(%a)%d+$'), sub(own_record, 31)
end
if state and math.max(tonumber(sub(own_record, 2, 14)) or 0, now_ms + lease) + KEY_GRACE <= sub(line, 3, 15) + 0
  and is_queue_valid and (state ~= 'g' or not recall or writers_head) then
-- @include fast/first_waiter
-- @include fast/queue_blocked
  if is_blocked or waiters == 0 and not upgrader then
    holder_field, record, new_state = own_field, own_record, state
    if state == 'g' then
      new_state, cached_fields = 'k', { 'i:' .. index, '+' .. caller, 'cached_readers', cached_count + 1 }
    end
    local recall_mode = writers_head and 'w' or readers_head and 'r' or state == 'c' and 'w' or '-'
    cached_reply = ' ' .. sub(line, 16, 31) .. ' ' .. recall_mode
  end
end
