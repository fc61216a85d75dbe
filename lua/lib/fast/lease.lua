-- What a fast acquire writes of its lease: its deadline, and a life of the key that covers it. The
-- line, if there is one, begins with its digits.
local deadline, life = now_ms + lease, line and sub(line, 3, 15)
local ends, lives = deadline .. '', life and life + 0 or 0
local longer = deadline + KEY_GRACE > lives
if longer then
  lives = deadline + KEY_GRACE + (line and EXPIRY_SLACK or 0)
  life = lives .. ''
end
local long = lives > now_ms + IDLE_KEY_TTL and '1' or '0' -- whether the release must lower it
