-- What a usual acquire writes of its lease: its deadline, and a life of the key that covers it.
local deadline, life = now + lease, line and string.sub(line, 3, 15)
local ends, lives = deadline .. '', tonumber(life or 0) or NEVER
local longer = deadline + GRACE > lives
if longer then
  lives = deadline + GRACE + (line and SLACK or 0)
  life = lives .. ''
end
local long = lives > now + KEEP and '1' or '0' -- whether the release must lower it
