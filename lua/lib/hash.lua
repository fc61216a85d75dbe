-- A write-back cache over the lock's hash. A script changes fields here and writes them in one go
-- at its end: so nothing is half done when an argument, a field or the server's memory turns out to
-- be bad.
local fields, changed, order = {}, {}, {}

local function get(field)
  local value = fields[field]
  if value == nil then
    value = call('HGET', key, field)
    fields[field] = value
  end
  return value
end

-- Keeps what one HMGET has read.
local function seed(some, values)
  for at, field in ipairs(some) do
    fields[field] = values[at]
  end
end

local function number(field)
  local value = get(field)
  if not value then
    return 0
  end
  return tonumber(value) or malformed(field)
end

-- Sets a field; false removes it.
local function put(field, value)
  fields[field] = value
  if not changed[field] then
    changed[field] = true
    order[#order + 1] = field
  end
end

local function drop(...)
  for _, field in ipairs({ ... }) do
    if get(field) then
      put(field, false)
    end
  end
end

-- The key must live until `deadline` and the grace after it.
local covered = 0
local function cover(deadline)
  covered = math.max(covered, deadline + GRACE)
end

local function is_idle()
  return not get('writer') and number('readers') == 0 and number('waiters') == 0
end

-- The life of the key in absolute ms, if it must be set: longer when something new needs it, down
-- to the grace when nobody holds or waits any more (after the last token's time, should the clock
-- be behind it: no token may come twice).
local function life()
  if is_idle() then
    for _, field in ipairs(IDLE) do
      put(field, false)
    end
    return math.max(now, math.floor(number('fence') / 1000)) + GRACE
  elseif covered > number('until') then
    put('until', covered + SLACK)
    return covered + SLACK
  end
end

-- Writes what has changed. What frees a lock or keeps one alive must not be refused by a full
-- memory: it begins with an HDEL of a field that does not exist, after which the server refuses
-- nothing more in this script for its memory. What takes a lock begins with an HSET, so that the
-- limit can stop it, and returns the server's error then, with nothing written. Both set before
-- they delete: a user who lacks the right to set changes nothing.
local function flush(frees)
  if #order == 0 then
    return
  end
  local expire_at = life()
  local gone, set = {}, {}
  for _, field in ipairs(order) do
    local value = fields[field]
    if value then
      set[#set + 1] = field
      set[#set + 1] = type(value) == 'number' and format('%.0f', value) or value
    else
      gone[#gone + 1] = field
    end
  end
  if #set > 0 and frees then
    call('HDEL', key, '-')
    call('HSET', key, unpack(set))
  elseif #set > 0 then
    local done = redis.pcall('HSET', key, unpack(set))
    if type(done) == 'table' then
      return server_error(done)
    end
  end
  if #gone > 0 then
    call('HDEL', key, unpack(gone))
  end
  if expire_at then
    call('PEXPIREAT', key, format('%.0f', expire_at))
  end
  changed, order = {}, {}
end
