-- Adds the grant of `next_waiter` to the message of its client.
--
-- Before it: `messages`, by channel and in order; `node` and `tag`, of the waiter's record;
-- `last_token` and `deadline_text`, of the grant.
if node ~= '-' then
  local channel = '{' .. tag .. '}rwlease:' .. sub(next_waiter, 1, 11)
  local message = messages[channel]
  if not message then
    message = { channel = channel, text = '' }
    messages[channel], messages[#messages + 1] = message, message
  end
  message.text = message.text .. ' ' .. next_waiter .. ' ' .. last_token .. ' ' .. deadline_text
  if node == ARGV[1] then
    message[#message + 1] = next_waiter -- only this server has its subscription
  end
end
