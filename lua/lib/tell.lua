-- The end of a pump: what was granted is told to the waiters' clients.

-- Takes back a grant that nobody heard, at the server where its waiter subscribed: the waiter is
-- gone.
local function take_back(granted)
  if granted.entry.mode == 'w' then
    put('writer', false)
  else
    local _, _, _, _, index = reading(granted.entry.id)
    remove_reader(granted.entry.id, index)
  end
end

-- Tells each client of its grants in one message: "<now> <more>", then " <id> <token> <deadline>"
-- for each. Returns true if some of them are gone and were passed over.
local function tell()
  local channels, messages, heard_by = {}, {}, {}
  for _, granted in ipairs(grants) do
    local entry = granted.entry
    if entry.node ~= '-' then
      local channel = '{' .. entry.tag .. '}rwlease:' .. string.sub(entry.id, 1, CLIENT_ID_LEN)
      if not messages[channel] then
        channels[#channels + 1], messages[channel], heard_by[channel] = channel, format('%.0f %d', now, more), {}
      end
      messages[channel] = messages[channel] .. format(' %s %.0f %.0f', entry.id, granted.token, granted.deadline)
      table.insert(heard_by[channel], granted)
    end
  end
  grants = {}
  local gone = false
  for _, channel in ipairs(channels) do
    if redis.pcall('SPUBLISH', channel, messages[channel]) == 0 then
      for _, granted in ipairs(heard_by[channel]) do
        if granted.entry.node == here and granted.entry.mode ~= 'u' then
          take_back(granted)
          gone = true
        end
      end
    end
  end
  return gone
end

-- The end of every script that may free something: grants, asks cached holders for the lock
-- (`call_back`, if it is given), writes, tells.
local function settle(frees, call_back)
  repeat
    pump()
    if call_back then
      call_back()
    end
    flush(frees)
    frees = true
  until not tell()
end
