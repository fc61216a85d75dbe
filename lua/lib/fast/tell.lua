-- Tells the clients of those whom a fast path has let in. `handed.unheard` gets those of whom
-- nobody heard at the server of their subscription: their clients are gone.
for _, message in ipairs(handed.told) do
  if redis.pcall('SPUBLISH', message.channel, moment .. ' ' .. handed.more .. message.text) == 0 then
    for _, id in ipairs(message) do
      handed.unheard[#handed.unheard + 1] = id
    end
  end
end
line = set[2]
