-- Publishes the grants that a fast path has made. `handed.unheard` gets the ids whose message
-- nobody received at the server of their subscription: their clients are gone.
for _, message in ipairs(handed.told) do
  if redis.pcall('SPUBLISH', message.channel, now_ms_text .. ' ' .. handed.more .. message.text) == 0 then
    for _, id in ipairs(message) do
      handed.unheard[#handed.unheard + 1] = id
    end
  end
end
line = set[2]
