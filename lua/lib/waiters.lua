-- The waiters: q:<owner> is an entry, and the entries of a mode ('r', 'w') are a doubly linked list in the order of their tickets, so that
-- leaving is O(1) and leaves no hole. The one upgrader has an entry of mode 'u' that is in no list.
local HEAD = { r = 'readers_head', w = 'writers_head' }
local TAIL = { r = 'readers_tail', w = 'writers_tail' }
local STEPS = 16 -- how far from either end a returning waiter looks for its place

local CLIENT = 11 -- an owner's first characters name its client
local LAPSES = 4 -- clients that are remembered for having let a grant lapse

local ENTRY = '^(%a) (%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%a) (%S+) (%S+) (%d+)$'
local entries = {}

local function waiter(owner)
  if not owner or owner == '-' then
    return false
  end
  local entry = entries[owner]
  if entry == nil then
    local text = get('q:' .. owner)
    entry = false
    if text then
      local part = { string.match(text, ENTRY) }
      if #part ~= 12 then
        malformed('waiter')
      end
      entry = {
        owner = owner,
        mode = part[1],
        previous = part[2],
        next = part[3],
        ticket = tonumber(part[4]),
        seen = tonumber(part[5]), -- when it last polled
        liveness = tonumber(part[6]), -- how long it lives without a poll
        lease = tonumber(part[7]),
        window = tonumber(part[8]), -- how long a grant waits to be claimed
        fairness = part[9], -- 'f' phase-fair, 'r' readers first
        node = part[10], -- the server of its subscription, '-' if it only polls
        tag = part[11], -- the hash tag of its channel
        since = tonumber(part[12]), -- when it came
      }
    end
    entries[owner] = entry
  end
  return entry
end

local function save(entry)
  entries[entry.owner] = entry
  put(
    'q:' .. entry.owner,
    format(
      '%s %s %s %.0f %.0f %.0f %.0f %.0f %s %s %s %.0f',
      entry.mode,
      entry.previous,
      entry.next,
      entry.ticket,
      entry.seen,
      entry.liveness,
      entry.lease,
      entry.window,
      entry.fairness,
      entry.node,
      entry.tag,
      entry.since
    )
  )
  cover(entry.seen + entry.liveness)
end

local function forget(entry)
  entries[entry.owner] = false
  put('q:' .. entry.owner, false)
end

local function tally(entry, change)
  put('waiters', number('waiters') + change)
  if entry.mode == 'w' and entry.fairness == 'f' then
    put('fair', number('fair') + change)
  end
  if number('waiters') == 0 then
    drop('waiters', 'fair')
  end
end

-- The entry behind which a ticket older than the tail's belongs (false: it is the head). A waiter that was dropped as dead is put back here; it was near the head, so
-- a few steps find it. Where they do not, it stands behind its due place, never before it.
local function predecessor(entry)
  local before, behind = false, waiter(get(HEAD[entry.mode]))
  for _ = 1, STEPS do
    if not behind or behind.ticket > entry.ticket then
      return before
    end
    before, behind = behind, waiter(behind.next)
  end
  before = waiter(get(TAIL[entry.mode]))
  for _ = 1, STEPS do
    if not before or before.ticket < entry.ticket then
      return before
    end
    before = waiter(before.previous)
  end
  return before
end

-- Puts the entry into its list in the order of tickets.
local function link(entry)
  local before = waiter(get(TAIL[entry.mode]))
  if before and before.ticket > entry.ticket then
    before = predecessor(entry)
  end
  local behind
  if before then
    behind = waiter(before.next)
    before.next = entry.owner
    save(before)
  else
    behind = waiter(get(HEAD[entry.mode]))
    put(HEAD[entry.mode], entry.owner)
  end
  if behind then
    behind.previous = entry.owner
    save(behind)
  else
    put(TAIL[entry.mode], entry.owner)
  end
  entry.previous = before and before.owner or '-'
  entry.next = behind and behind.owner or '-'
  save(entry)
  tally(entry, 1)
end

local function unlink(entry)
  local before, behind = waiter(entry.previous), waiter(entry.next)
  if before then
    before.next = entry.next
    save(before)
  else
    put(HEAD[entry.mode], behind and behind.owner)
  end
  if behind then
    behind.previous = entry.previous
    save(behind)
  else
    put(TAIL[entry.mode], before and before.owner)
  end
  forget(entry)
  tally(entry, -1)
end

-- Remembers that a client let a grant lapse at `at`: its waiters that have not been seen since are passed over, so that a client
-- that is gone costs one claim window and not one for each of its waiters.
local function lapse(owner, at)
  local client = string.sub(owner, 1, CLIENT)
  local kept = { format('%s %.0f', client, at) }
  for other, time in string.gmatch(get('lapsed') or '', '(%S+) (%d+)') do
    if other ~= client and #kept < LAPSES then
      kept[#kept + 1] = other .. ' ' .. time
    end
  end
  put('lapsed', table.concat(kept, ' '))
end

local function is_alive(entry)
  if entry.seen + entry.liveness <= now then
    return false
  end
  local client = string.sub(entry.owner, 1, CLIENT)
  for other, time in string.gmatch(get('lapsed') or '', '(%S+) (%d+)') do
    if other == client and tonumber(time) >= entry.seen then
      return false
    end
  end
  return true
end
