-- Notifies the waiters' clients of their grants.

-- Reverts a grant whose message no client received, at the server of the waiter's subscription: the
-- waiter's client is gone.
local function revert_grant(granted)
  if granted.waiter.mode == 'w' then
    put('writer', false)
  else
    local _, _, _, _, index = find_reader(granted.waiter.id)
    remove_reader(granted.waiter.id, index)
  end
end

-- Sends each client its grants in one message: "<now> <more>", then " <id> <token> <deadline>" for
-- each grant. Only the last message says `more`, so that not each client calls grant_waiters.
-- Returns true if it has reverted a grant.
local function notify_waiters()
  local channels, messages, grants_by_channel = {}, {}, {}
  for _, granted in ipairs(grants) do
    local waiter = granted.waiter
    if waiter.node ~= '-' then
      local channel = '{' .. waiter.tag .. '}rwlease:' .. string.sub(waiter.id, 1, CLIENT_ID_LEN)
      if not messages[channel] then
        channels[#channels + 1], messages[channel], grants_by_channel[channel] =
          channel, '', {}
      end
      messages[channel] = messages[channel] .. format(' %s %.0f %.0f', waiter.id, granted.token, granted.deadline)
      table.insert(grants_by_channel[channel], granted)
    end
  end
  grants = {}
  local any_reverted = false
  for i, channel in ipairs(channels) do
    local more = channels[i + 1] and 0 or has_more_work
    if redis.pcall('SPUBLISH', channel, format('%.0f %d', now_ms, more) .. messages[channel]) == 0 then
      for _, granted in ipairs(grants_by_channel[channel]) do
        if granted.waiter.node == server_name and granted.waiter.mode ~= 'u' then
          revert_grant(granted)
          any_reverted = true
        end
      end
    end
  end
  return any_reverted
end

-- The end of each script that may free a lock: grants it to waiters, calls `recall_blockers` if
-- given, writes, and notifies. Repeats this if it has reverted a grant.
local function finish(frees_lock, recall_blockers)
  repeat
    grant_waiters()
    if recall_blockers then
      recall_blockers()
    end
    flush(frees_lock)
    frees_lock = true
  until not notify_waiters()
end
