-- The deadline of a fast acquire, and an expiry of the key that covers it. The stored line, if
-- there is one, has the old expiry.
local deadline, key_expiry = now_ms + lease, line and sub(line, 3, 15)
local deadline_text, current_expiry = deadline .. '', key_expiry and key_expiry + 0 or 0
local needs_new_expiry = deadline + KEY_GRACE > current_expiry
if needs_new_expiry then
  current_expiry = deadline + KEY_GRACE + (line and EXPIRY_SLACK or 0)
  key_expiry = current_expiry .. ''
end
local long_flag = current_expiry > now_ms + IDLE_KEY_TTL and '1' or '0' -- whether the release must lower the expiry
