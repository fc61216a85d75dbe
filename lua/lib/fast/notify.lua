-- Publishes the grants of a fast path. `handoff.undelivered` gets the ids whose message no client
-- received at the server of their subscription: their clients are gone. Only the last message says
-- `more`, so that not each of its clients calls grant_waiters.
for i, message in ipairs(handoff.messages) do
  local more = handoff.messages[i + 1] and 0 or handoff.has_more_work
  if redis.pcall('SPUBLISH', message.channel, now_ms_text .. ' ' .. more .. message.text) == 0 then
    for _, id in ipairs(message) do
      handoff.undelivered[#handoff.undelivered + 1] = id
    end
  end
end
line = new_fields[2]
