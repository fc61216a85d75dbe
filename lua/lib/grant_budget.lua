-- What one call may do to let waiters in, and what it has done so far.
local MAX_READERS_CHECKED = 16 -- readers looked at when somebody is blocked by them; a few otherwise
local MAX_READERS_CHECKED_UNBLOCKED = 2

local caller_id = false -- the acquisition that this call is made for, if it acquires the lock
local has_more_work = 0
local grants_left, checks_left = MAX_GRANTS, MAX_READERS_CHECKED
local grants = {}

local function next_token()
  local token = math.max(number('fence') + 1, now_us)
  if token >= MAX_SAFE_INTEGER then
    malformed_error('fence') -- the next one would be the same
  end
  put('fence', token)
  extend_expiry_to(math.floor(token / 1000))
  return token
end

-- The first living waiter of a list; dead ones before it are dropped.
local function first_alive(mode)
  local waiter = neighbor(get(HEAD_FIELD[mode]))
  while waiter and waiter.id ~= caller_id and not is_alive(waiter) and grants_left > 0 do
    unlink(waiter)
    grants_left = grants_left - 1
    waiter = neighbor(get(HEAD_FIELD[mode]))
  end
  return waiter
end
