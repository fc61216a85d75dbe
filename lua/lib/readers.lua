-- The readers: r:<owner> is a reader's record, whose rest is its index; i:<index> is the owner at that index, a dense array
-- from 0 to readers - 1. `read_min` is a lower bound of their deadlines: until then none of them is dead. It is 0 while a sweep is under way.

-- The state of a sweep under way: the next index to look at (downwards) and the least deadline seen.
local function sweeping()
  local text = get('sweep')
  if text then
    local cursor, least = string.match(text, '^(%d+) (%d+)$')
    return tonumber(cursor) or malformed('sweep'), tonumber(least)
  end
end

local function keep_sweep(cursor, least)
  put('sweep', format('%.0f %.0f', cursor, least))
  put('read_min', 0)
end

local function add_reader(owner, state, deadline, token)
  local index = number('readers')
  put('r:' .. owner, record(state, deadline, token, index))
  put('i:' .. index, owner)
  put('readers', index + 1)
  if index == 0 or deadline < number('read_min') then
    put('read_min', deadline)
  end
  local cursor, least = sweeping()
  if cursor and deadline < least then
    keep_sweep(cursor, deadline)
  end
  if index == FEW and not get('wide') then
    put('wide', WIDE)
  end
  cover(deadline)
end

-- Fills the hole with the last reader. A sweep goes downwards, so the last one never moves from the part that is still to be looked at
-- into the part that has been.
local function remove_reader(owner, index)
  local last = number('readers') - 1
  if index < last then
    local moved = get('i:' .. last) or malformed('readers')
    local text = get('r:' .. moved) or malformed('readers')
    put('r:' .. moved, string.sub(text, 1, 30) .. index)
    put('i:' .. index, moved)
  end
  put('i:' .. last, false)
  put('r:' .. owner, false)
  if last > 0 then
    put('readers', last)
  else
    drop('readers', 'read_min', 'sweep', 'forced')
  end
end

-- The record of a reader that holds, or nothing.
local function reading(owner)
  local text = get('r:' .. owner)
  if text then
    local state, deadline, token, index = parse(text)
    return deadline > now and token > number('forced'), state, deadline, token, tonumber(index) or malformed('record')
  end
end

-- Looks at up to `budget` readers for dead ones. Returns true if there may be more.
local function sweep(budget)
  local total = number('readers')
  if total == 0 or number('read_min') > now then
    return false
  end
  local cursor, least = sweeping()
  cursor, least = cursor or total - 1, least or NEVER
  while budget > 0 and cursor >= 0 do
    cursor = math.min(cursor, number('readers') - 1)
    if cursor < 0 then
      break
    end
    local owner = get('i:' .. cursor) or malformed('readers')
    local alive, state, deadline = reading(owner)
    if alive == nil then
      malformed('readers')
    elseif alive then
      least = math.min(least, deadline)
    else
      if state == 'g' then
        lapse(owner, deadline)
      end
      remove_reader(owner, cursor)
    end
    cursor, budget = cursor - 1, budget - 1
  end
  if number('readers') == 0 then
    return false
  elseif cursor >= 0 then
    keep_sweep(cursor, least)
    return true
  end
  put('read_min', least)
  drop('sweep', 'forced')
  return least <= now -- seen alive by an earlier call of this sweep, and dead by now
end
