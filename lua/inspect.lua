-- Tells who holds and who waits, a page at a time. Reads only.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  0
-- ARGV[3]  first reader's index
-- ARGV[4]  first waiting writer (id, - for the head, none for no writers)
-- ARGV[5]  first waiting reader (id, - for the head, none for no readers)
-- ARGV[6]  most entries of each kind, 1 to 100
--
-- Reply: now, status, 0
--   absent   there is no such lock
--   lock     last token, writer, readers, waiters, upgrader, revoked token, readers of the page,
--            waiting writers of the page, waiting readers of the page
-- The writer is its record (empty: none), the upgrader a list of none or one waiter. A reader is
-- id, record; a waiter is id, entry. Records and entries are as in the hash; they may have run out.
-- A waiter that left between two pages ends its list there.
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS.
-- Cost: TIME, HMGET, HGET for the upgrader, and at most five calls for each entry.

-- @include constants
-- @include clock
-- @include prelude

local from, most = whole(3, 0, NEVER), whole(6, 1, 100)
if #KEYS ~= 1 or #ARGV ~= 6 then
  return refuse('count')
elseif not from or not most then
  return refuse('page')
elseif not is_word(ARGV[4], 40) or not is_word(ARGV[5], 40) then
  return refuse('id')
end
local names = { 'version', 'fence', 'writer', 'readers', 'waiters', 'upgrader', 'revoked', 'forced' }
local lock = redis.pcall('HMGET', key, unpack(names))
local strange = foreign(lock)
if strange then
  return strange
elseif not lock[1] then
  return { now, 'absent', 0 }
end

-- The number in a field, 0 if there is none.
local function count(at)
  return tonumber(lock[at] or 0) or malformed(names[at])
end

local function readers()
  local page, total = {}, count(4)
  for index = from, math.min(from + most, total) - 1 do
    local id = call('HGET', key, 'i:' .. format('%.0f', index)) or malformed('readers')
    local text = call('HGET', key, 'r:' .. id) or malformed('readers')
    local _, _, token = parse(text)
    if token > count(8) then
      page[#page + 1] = id
      page[#page + 1] = text
    end
  end
  return page
end

local function upgrader()
  local id = lock[6]
  return id and { id, call('HGET', key, 'q:' .. id) or malformed('upgrader') } or {}
end

local function waiters(head, id)
  local page = {}
  if id == '-' then
    id = call('HGET', key, head)
  end
  while id and id ~= '-' and #page < 2 * most do
    local text = call('HGET', key, 'q:' .. id)
    if not text then
      break
    end
    page[#page + 1] = id
    page[#page + 1] = text
    id = string.match(text, '^%a %S+ (%S+)') or malformed('waiter')
  end
  return page
end

return answer(function()
  return {
    now,
    'lock',
    0,
    count(2),
    lock[3] or '',
    count(4),
    count(5),
    upgrader(),
    count(7),
    readers(),
    waiters('writers_head', ARGV[4]),
    waiters('readers_head', ARGV[5]),
  }
end)
