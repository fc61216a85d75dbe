-- Writing what has changed, in a fixed order: one HSET of the line and the fields, one HDEL of the
-- fields that are gone, and PEXPIREAT if the key's life changes.

-- Fields that say nothing once nobody holds or waits.
local IDLE_FIELDS = { 'ticket', 'phase', 'lapsed', 'revoked', 'forced' }

local function forget_idle()
  for _, field in ipairs(IDLE_FIELDS) do
    if shape == 'Q' or leftover then
      put(field, false)
    else
      fields[field] = false -- only the line could tell of it
    end
  end
end

-- The end of the key's life: later when something new needs it. An idle key lives for the grace
-- after now, or after the last token's time should the clock be behind it (no token may come
-- twice), and at the most for IDLE_KEY_TTL.
local function life_needed()
  if is_idle() then
    local floor = math.max(now, math.floor(number('fence') / 1000))
    return (life > floor + IDLE_KEY_TTL or life < floor + KEY_GRACE) and floor + KEY_GRACE or life
  end
  return covered > life and covered + (shape == 'N' and 0 or EXPIRY_SLACK) or life
end

local function text_of(value)
  return type(value) == 'number' and format('%.0f', value) or value
end

-- The fields to set and those to delete, when the new line tells of the fields in `hidden`.
local function changes(hidden, telling)
  local set, gone = {}, {}
  if shape == 'Q' then
    for _, field in ipairs(telling) do
      gone[#gone + 1] = field -- it stood in the hash
    end
  end
  for _, field in ipairs(implied) do
    if fields[field] and not hidden[field] and not changed[field] then
      set[#set + 1] = field
      set[#set + 1] = text_of(fields[field])
    end
  end
  for _, field in ipairs(order) do
    local value = fields[field]
    if field == 'fence' or hidden[field] then -- luacheck: ignore 542
      -- The line tells of it.
    elseif value then
      set[#set + 1] = field
      set[#set + 1] = text_of(value)
    elseif not virtual[field] and shape ~= 'N' then
      gone[#gone + 1] = field
    end
  end
  return set, gone
end

-- Sends it. What frees a lock or keeps one alive must not be refused by a full memory: after an
-- HDEL, of a field that does not exist, the server refuses nothing more in this script for its
-- memory. What takes a lock begins with an HSET, so that the limit can stop it; of the same line,
-- if there is something to delete. A refusal of the first command is raised, with nothing written.
local function send(set, gone, frees)
  if #gone > 0 then
    if not frees then
      call('HSET', key, 's', found)
    end
    call('HDEL', key, '-') -- a user who may not delete stops here
  end
  local done = redis.pcall('HSET', key, unpack(set))
  if type(done) == 'table' then
    if not frees or not string.find(done.err, 'OOM', 1, true) then
      error(server_error(done).err, 0)
    end
    call('HDEL', key, '-')
    call('HSET', key, unpack(set))
  end
  if #gone > 0 then
    call('HDEL', key, unpack(gone))
  end
end

-- Takes back what was set in a lock that was nobody's. True if that was done.
local function unset(set)
  local gone = {}
  for at = 1, #set, 2 do
    if shape == 'N' or set[at] ~= 's' then
      gone[#gone + 1] = set[at]
    end
  end
  if gone[1] and type(redis.pcall('HDEL', key, unpack(gone))) == 'table' then
    return false
  elseif shape == 'F' then
    call('HSET', key, 's', found)
  end
  return true
end

local function flush(frees)
  if #order == 0 then
    return
  elseif is_idle() then
    forget_idle()
  end
  local ends = life_needed()
  local into, tail = shaped(ends)
  local text = format('2%s%013.0f%016.0f%s', into, ends, number('fence'), tail)
  local hidden, telling = {}, told(into)
  for _, field in ipairs(telling) do
    hidden[field] = true
  end
  local set, gone = changes(hidden, telling)
  if text ~= found or #set == 0 then
    set[#set + 1], set[#set + 2] = 's', text
  end
  send(set, gone, frees)
  if ends ~= life then
    local done = redis.pcall('PEXPIREAT', key, format('%.0f', ends))
    if type(done) == 'table' then
      if shape ~= 'N' and shape ~= 'F' or not unset(set) then
        -- No later call may rely on that life.
        call('HSET', key, 's', format('2%s%013.0f', into, life) .. string.sub(text, 16))
      end
      error(server_error(done).err, 0)
    end
  end
  changed, order, virtual, implied = {}, {}, hidden, telling
  shape, life, found, leftover = into, ends, text, (into == 'S' or into == 'P') and string.sub(tail, 14, 14) >= '2'
end
