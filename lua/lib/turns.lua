-- What one call may do to let waiters in, and what it has done so far.
local MAX_READERS_CHECKED = 16 -- readers looked at when somebody is blocked by them; a few otherwise
local MAX_READERS_CHECKED_UNBLOCKED = 2

local me = false -- the acquisition that this call is made for, if it acquires the lock
local more = 0
local steps, looks = MAX_GRANTS, MAX_READERS_CHECKED
local grants = {}

local function mint()
  local token = math.max(number('fence') + 1, us)
  if token >= MAX_SAFE_INTEGER then
    malformed('fence') -- the next one would be the same
  end
  put('fence', token)
  cover(math.floor(token / 1000))
  return token
end

-- The first living waiter of a list; dead ones before it are dropped.
local function first(mode)
  local entry = linked(get(HEAD_FIELD[mode]))
  while entry and entry.id ~= me and not is_alive(entry) and steps > 0 do
    unlink(entry)
    steps = steps - 1
    entry = linked(get(HEAD_FIELD[mode]))
  end
  return entry
end
