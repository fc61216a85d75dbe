-- @layer
-- The waiters. `q:<id>` is a waiter's record. The waiters of a mode ('r', 'w') are a doubly linked
-- list in the order of their tickets, so that leaving is O(1) and leaves no gap. The upgrader has a
-- record of mode 'u' and is in no list. The waiters of a semaphore have mode 'p'.
local HEAD_FIELD = { r = 'readers_head', w = 'writers_head', p = 'head' }
local TAIL_FIELD = { r = 'readers_tail', w = 'writers_tail', p = 'tail' }
local MAX_SEARCH_STEPS = 16 -- how far from either end the place of a returning waiter is searched

local CLIENT_ID_LEN = 11 -- the first characters of an id name its client
local MAX_LAPSED_CLIENTS = 32 -- clients whose lapsed grant is remembered

local WAITER_PATTERN = '^(%a) (%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%w+) (%S+) (%S+) (%d+)$'
local loaded_waiters = {}

local function load_waiter(id)
  local waiter = loaded_waiters[id]
  if waiter == nil then
    local record = get('q:' .. id)
    waiter = false
    if record then
      local parts = { string.match(record, WAITER_PATTERN) }
      if #parts ~= 12 then
        malformed_error('waiter')
      end
      waiter = {
        id = id,
        mode = parts[1],
        previous = parts[2],
        next = parts[3],
        ticket = tonumber(parts[4]),
        last_seen = tonumber(parts[5]), -- the time of its last poll
        ttl = tonumber(parts[6]), -- how long it lives without a poll
        lease = tonumber(parts[7]),
        window = tonumber(parts[8]), -- how long a grant waits for its claim
        fairness = parts[9], -- 'f' phase-fair, 'r' readers first; of a semaphore's waiter, its permits
        node = parts[10], -- the server of its subscription, '-' if it only polls
        tag = parts[11], -- the hash tag of its channel
        queued_at = tonumber(parts[12]), -- the time at which it joined
      }
    end
    loaded_waiters[id] = waiter
  end
  return waiter
end

-- Returns the waiter with this id, which an end of a list or a neighbor names. False if there is
-- none.
local function neighbor(id)
  return id and id ~= '-' and (load_waiter(id) or malformed_error('queue'))
end

local function save_waiter(waiter)
  loaded_waiters[waiter.id] = waiter
  put(
    'q:' .. waiter.id,
    format(
      '%s %s %s %.0f %.0f %.0f %.0f %.0f %s %s %s %.0f',
      waiter.mode,
      waiter.previous,
      waiter.next,
      waiter.ticket,
      waiter.last_seen,
      waiter.ttl,
      waiter.lease,
      waiter.window,
      waiter.fairness,
      waiter.node,
      waiter.tag,
      waiter.queued_at
    )
  )
  extend_expiry_to(waiter.last_seen + waiter.ttl)
end

local function delete_waiter(waiter)
  loaded_waiters[waiter.id] = false
  put('q:' .. waiter.id, false)
end

local function count_waiter(waiter, change)
  put('waiters', number('waiters') + change)
  if waiter.mode == 'w' and waiter.fairness == 'f' then
    put('fair_writers', number('fair_writers') + change)
  end
  if number('waiters') == 0 then
    delete_fields('waiters', 'fair_writers')
  end
end

-- Returns the waiter after which a ticket older than the tail's belongs, or false for the head. A
-- waiter that was removed as expired returns here. It was near the head, so a few steps find its
-- place. If they do not, it stands behind its place, never before it.
local function predecessor(waiter)
  local previous, following = false, neighbor(get(HEAD_FIELD[waiter.mode]))
  for _ = 1, MAX_SEARCH_STEPS do
    if not following or following.ticket > waiter.ticket then
      return previous
    end
    previous, following = following, neighbor(following.next)
  end
  previous = neighbor(get(TAIL_FIELD[waiter.mode]))
  for _ = 1, MAX_SEARCH_STEPS do
    if not previous or previous.ticket < waiter.ticket then
      return previous
    end
    previous = neighbor(previous.previous)
  end
  return previous
end

-- Inserts a waiter into its list, in the order of tickets.
local function link(waiter)
  local previous = neighbor(get(TAIL_FIELD[waiter.mode]))
  if previous and previous.ticket > waiter.ticket then
    previous = predecessor(waiter)
  end
  local following
  if previous then
    following = neighbor(previous.next)
    previous.next = waiter.id
    save_waiter(previous)
  else
    following = neighbor(get(HEAD_FIELD[waiter.mode]))
    put(HEAD_FIELD[waiter.mode], waiter.id)
  end
  if following then
    following.previous = waiter.id
    save_waiter(following)
  else
    put(TAIL_FIELD[waiter.mode], waiter.id)
  end
  waiter.previous = previous and previous.id or '-'
  waiter.next = following and following.id or '-'
  save_waiter(waiter)
  count_waiter(waiter, 1)
end

local function unlink(waiter)
  local previous, following = neighbor(waiter.previous), neighbor(waiter.next)
  if previous then
    previous.next = waiter.next
    save_waiter(previous)
  else
    put(HEAD_FIELD[waiter.mode], following and following.id)
  end
  if following then
    following.previous = waiter.previous
    save_waiter(following)
  else
    put(TAIL_FIELD[waiter.mode], previous and previous.id)
  end
  delete_waiter(waiter)
  count_waiter(waiter, -1)
end

-- Records that a client's grant lapsed at `lapsed_at`. The client's waiters that have not polled
-- since are skipped, so that a client that is gone costs one claim window in all, not one for each
-- of its waiters.
local function record_lapse(id, lapsed_at)
  local client = string.sub(id, 1, CLIENT_ID_LEN)
  local records = { format('%s %.0f', client, lapsed_at) }
  for other_client, lapse_time in string.gmatch(get('lapsed_clients') or '', '(%S+) (%d+)') do
    if other_client ~= client and #records < MAX_LAPSED_CLIENTS then
      records[#records + 1] = other_client .. ' ' .. lapse_time
    end
  end
  put('lapsed_clients', table.concat(records, ' '))
end

local function is_alive(waiter)
  if waiter.last_seen + waiter.ttl <= now_ms then
    return false
  end
  local lapsed = ' ' .. (get('lapsed_clients') or '')
  local _, position = string.find(lapsed, ' ' .. string.sub(waiter.id, 1, CLIENT_ID_LEN) .. ' ', 1, true)
  local lapse_time = position and tonumber(string.match(lapsed, '^%d+', position + 1))
  return not lapse_time or lapse_time <= waiter.last_seen
end
