-- What a fast acquire writes of its lease: its deadline, and a life of the key that covers it. The
-- line, if there is one, begins with its digits.
local deadline, key_expiry = now_ms + lease, line and sub(line, 3, 15)
local deadline_text, current_expiry = deadline .. '', key_expiry and key_expiry + 0 or 0
local needs_new_expiry = deadline + KEY_GRACE > current_expiry
if needs_new_expiry then
  current_expiry = deadline + KEY_GRACE + (line and EXPIRY_SLACK or 0)
  key_expiry = current_expiry .. ''
end
local long_flag = current_expiry > now_ms + IDLE_KEY_TTL and '1' or '0' -- whether the release must lower it
