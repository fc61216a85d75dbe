-- Continues the work that another call has left (`more` in its reply): grants permits to the next
-- waiters.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name
--
-- Reply: done, now, more
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: if no waiter can be granted HGET, TIME, HMGET and at most one HGET; otherwise a bounded
-- number of calls.

-- @include constants
-- @include read_line

-- Fast path: the next waiters are granted permits, or none can be.
--
-- The conditions, in this order: the call and the line are well formed; the clock is past the last
-- token; the queue is valid, and no holder has expired; those of the grants (permit_grants.lua).
local sub, find = string.sub, string.find
local handoff
local is_fast_path = #KEYS == 1
  and #ARGV == 1
  and line
  and #line > 45
  and find(line, '^2P%d+ %d+ %d+$')
  and #now_us_text == 16
  and sub(line, 16, 31) < now_us_text
if is_fast_path then
  local flag, limit, used, holders = string.match(line, '^([0-3])([1-9]%d*) (%d+) (%d+)$', 45)
  local new_fields, removed_fields, new_expiry, reply = nil, {}, nil, nil
  local other_fields = {}
-- @include fast/permit_queue
  if holders and is_queue_valid() then
    local stored_expiry, moved_fields = sub(line, 3, 15) + 0, {}
    local held, index, min_deadline = used + 0, holders + 0, sub(line, 32, 44) + 0
-- @include fast/permit_grants
  end
  if new_fields and handoff.grant_count == 0 then
    return 'done ' .. now_ms_text .. ' 0'
  elseif new_fields then
-- @include fast/write_fields
-- @include fast/notify
    if not handoff.undelivered[1] then
      return 'done ' .. now_ms_text .. ' ' .. handoff.has_more_work
    end
  end
end

-- @include prelude

if #KEYS ~= 1 or #ARGV ~= 1 then
  return argument_error('number of keys or arguments')
end

-- @include field_cache
-- @include semaphore_state

return run(function()
  local load_error = load({})
  if load_error then
    return load_error
  end
  if handoff then
-- @include fast/revert_grants
  end
  if shape ~= 'N' then
    finish(true)
  end
  return ok_reply('done', has_more_work)
end)
