-- The grant budget of one call: how many waiters it may grant and how many readers it may check.
local MAX_READERS_CHECKED = 16 -- in one call, when readers block a waiter
local MAX_READERS_CHECKED_UNBLOCKED = 2

local caller_id = false -- the id for which the call acquires the lock
local has_more_work = 0
local grants_left, checks_left = MAX_GRANTS, MAX_READERS_CHECKED
local grants = {}

local function next_token()
  local token = math.max(number('fence') + 1, now_us)
  if token >= MAX_SAFE_INTEGER then
    malformed_error('fence') -- a later token would be the same number
  end
  put('fence', token)
  extend_expiry_to(math.floor(token / 1000))
  return token
end

-- Returns the first living waiter of a list. Removes the expired waiters before it. If the budget
-- ends before that, returns an expired waiter, and later calls remove the rest.
local function first_alive(mode)
  local waiter = neighbor(get(HEAD_FIELD[mode]))
  while waiter and waiter.id ~= caller_id and not is_alive(waiter) do
    if grants_left <= 0 then
      has_more_work = 1
      break
    end
    unlink(waiter)
    grants_left = grants_left - 1
    waiter = neighbor(get(HEAD_FIELD[mode]))
  end
  return waiter
end
