-- Publishes the grants of a fast path. `handoff.undelivered` gets the ids whose message no client
-- received at the server of their subscription: their clients are gone.
for _, message in ipairs(handoff.messages) do
  if redis.pcall('SPUBLISH', message.channel, now_ms_text .. ' ' .. handoff.has_more_work .. message.text) == 0 then
    for _, id in ipairs(message) do
      handoff.undelivered[#handoff.undelivered + 1] = id
    end
  end
end
line = new_fields[2]
