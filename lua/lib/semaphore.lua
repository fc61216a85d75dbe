-- @layer
-- A semaphore: its state line, its permits, and who is next. Its holders are kept as readers are
-- (readers.lua), its waiters in one queue, first in, first out: none passes the head, however few
-- permits it wants.
local LINE_PATTERN = '^2(P)(%d+)'
local TAIL_PATTERN = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)([0-3])(%d+) (%d+) (%d+)$' -- bound of the deadlines, flags, limit, used, holders
local QUEUE_FIELDS = { 'waiters', 'head', 'tail', 'ticket', 'lapsed', 'sweep' }

-- Fields of a lock, which the shared parts look for.
for _, field in ipairs({ 'writer', 'forced', 'revoked', 'phase', 'cached', 'fair' }) do
  fields[field] = false
end

-- Takes the line apart, and reads the fields that the caller needs. Returns an error reply if the
-- key is not a semaphore.
local function open(needed)
  local kind, refused, tail = open_line(LINE_PATTERN)
  if not kind then
    return refused
  end
  local least, flags, limit, used, holders = string.match(tail, TAIL_PATTERN)
  if not holders or tonumber(limit) < 1 or tonumber(limit) > MAX_PERMITS then
    malformed('s')
  end
  imply('read_min', least)
  imply('limit', limit)
  imply('used', used)
  imply('readers', holders)
  leftover = flags >= '2'
  for _, field in ipairs(QUEUE_FIELDS) do
    if leftover then
      needed[#needed + 1] = field
    else
      fields[field] = false
    end
  end
  if needed[1] then
    prefetch(needed)
  end
end

local function shaped(ends)
  local queue = get('waiters') or get('ticket') or get('lapsed') or get('sweep')
  local flags = (ends - now > IDLE_KEY_TTL and 1 or 0) + (queue and 2 or 0)
  return 'P', format('%013.0f%d%.0f %.0f %.0f', number('read_min'), flags, number('limit'), number('used'), number('readers'))
end

local function told()
  return { 'read_min', 'limit', 'used', 'readers' }
end

-- @include flush
-- @include waiters
-- @include readers
-- @layer
-- @include turns

-- Writes the record of a holder that from now on has `kept` of its permits.
local function keep_permits(id, state, deadline, token, index, permits, kept)
  put('used', number('used') - permits + kept)
  put_reader(id, state, deadline, token, index, kept)
end

local thorough = true -- whether the look for dead holders goes on until all were looked at

-- Whether so many permits are left; dead holders are looked for where they are not. The look goes
-- on if these could make room.
local function has_room(permits)
  if number('used') + permits > number('limit') and looks > 0 then
    local goes_on, living, dead = sweep(looks)
    if goes_on and living + permits <= number('limit') and (thorough or dead > 0) then
      more = 1
    end
    looks = 0
  end
  return number('used') + permits <= number('limit')
end

-- The claim is the waiter's own affair: until it comes, a grant lasts for the waiter's window. The
-- caller has its full lease at once.
local function grant(entry, permits)
  local token, asks = mint(), entry.id == me
  local deadline = now + (asks and entry.lease or entry.window)
  unlink(entry)
  add_reader(entry.id, asks and 'h' or 'g', deadline, token, permits)
  if not asks then
    grants[#grants + 1] = { entry = entry, deadline = deadline, token = token }
  end
end

-- Grants the head its turn; false if it cannot go. A look at the holders may show that the client
-- of the head is gone: then another waiter is the head.
local function step()
  local entry = first('p')
  if steps <= 0 then
    return false
  elseif not entry then
    if looks > 0 then
      sweep(MAX_READERS_CHECKED_UNBLOCKED) -- the dead are in nobody's way, and go by and by
      looks = 0
    end
    return false
  end
  local permits = tonumber(entry.fairness) or malformed('waiter')
  if permits > number('limit') then
    unlink(entry) -- the limit was lowered; its next poll is told
    return true
  elseif not has_room(permits) then
    return first('p') ~= entry
  end
  if first('p') == entry then
    grant(entry, permits)
  end
  return true
end

local function pump()
  while steps > 0 and step() do
    steps = steps - 1
  end
  if steps <= 0 and get('head') then
    more = 1
  end
end

-- @include tell
