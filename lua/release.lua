-- Ends whatever an acquisition has: a lease, or a place in the queue. Nobody else's.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name    ARGV[2]  id
-- ARGV[3]  wait, to end only its wait: an upgrader reads on
--
-- Reply: status, now, more; now is 0 where the time was not asked for
--   released   its record stood, so nobody was granted the lock against it meanwhile. Its lease may
--              be over
--   left       it waited, and no longer does
--   expired    its record stood, but a forced release had taken the lock away
--   absent     the lock knows nothing of it
--   writing    token, deadline: the wait that was to end is over, the upgrade was granted (only
--              with wait)
-- Errors: WRONGTYPE, LOCKFOREIGN, LOCKVERSION, LOCKARGS. A full memory does not stop it.
-- Cost: of a sole holder HGET, HSET; of one of several readers HGET twice, HDEL, HSET, HDEL, and
-- two HGET more for a reader that is not the last; the last holder's beside a queue HGET, TIME,
-- HMGET, HDEL, HSET, HDEL, with a writer next HGET once or twice, SPUBLISH and at times PEXPIREAT;
-- else a bounded number of calls.

-- @include constants

-- A line that did not change was nobody else's: there is no hand-off to judge and no life to set.
-- These are the usual cases, without the machinery below.
local line, caller = redis.pcall('HGET', KEYS[1], 's'), ARGV[2]
local clock, stamp, moment, now, handed
local simple = #ARGV == 2 and #KEYS == 1 and line and #line > 30
if simple then
  local sub, find = string.sub, string.find
  local shape, set, gone, life, done = sub(line, 2, 2), nil, nil, nil, nil
  local _, digits = find(line, '^2%u%d+')
  if not digits then -- luacheck: ignore 542
    -- Malformed, as will be found.
  elseif digits > 44 and (shape == 'W' or shape == 'R') then
    -- No flags, and its id.
    if sub(line, 46) == caller and sub(line, 45, 45) == '0' and #caller >= 12 then
      local free = '2F' .. sub(line, 3, 31)
      done = redis.pcall('HSET', KEYS[1], 's', free)
      if done == 0 then
        return 'released 0 0'
      end
      set = { 's', free }
    end
  elseif shape == 'S' and digits == #line and find(line, '^[0-3][1-9]', 45) then
    local mine = 'r:' .. caller
    local record, last = redis.call('HGET', KEYS[1], mine), (tonumber(sub(line, 46)) or 0) - 1
    local index = record and sub(record, 31)
    if index and last == 0 and sub(line, 45, 45) == '0' then
      set, gone = { 's', '2F' .. sub(line, 3, 31) }, { mine, 'i:0' }
    elseif index and last > 0 then
      set, gone = { 's', sub(line, 1, 45) .. last }, { mine, 'i:' .. last }
      if index ~= last .. '' then
        -- The last reader fills the hole.
        local moved = redis.call('HGET', KEYS[1], gone[2])
        local other = moved and tonumber(index) and redis.call('HGET', KEYS[1], 'r:' .. moved)
        if other then
          set[3], set[4], set[5], set[6] = 'r:' .. moved, sub(other, 1, 30) .. index, 'i:' .. index, moved
        else
          set = nil
        end
      end
    end
  elseif shape == 'Q' and digits == 31 and #line == 31 then
-- @include handoff
  end
  if set then
    -- A full memory refuses nothing after an HDEL, and a user who may not delete stops there.
    done = done or gone and redis.pcall('HDEL', KEYS[1], '-') or redis.pcall('HSET', KEYS[1], unpack(set))
    if not gone and type(done) ~= 'number' and find(done.err, 'OOM', 1, true) then
      gone, done = {}, redis.pcall('HDEL', KEYS[1], '-')
    end
    if gone and type(done) == 'number' then
      done = redis.pcall('HSET', KEYS[1], unpack(set))
      if gone[1] and type(done) == 'number' then
        done = redis.pcall('HDEL', KEYS[1], unpack(gone))
      end
    end
    if life and type(done) == 'number' then
      done = redis.pcall('PEXPIREAT', KEYS[1], life)
      if type(done) ~= 'number' then
        -- No later call may rely on that life.
        redis.pcall('HSET', KEYS[1], 's', sub(set[2], 1, 2) .. sub(line, 3, 15) .. sub(set[2], 16))
      end
    end
    if type(done) ~= 'number' then
      return { err = string.match(done.err, ERROR) or 'ERR ' .. done.err }
    end
    if not handed then
      return 'released 0 0'
    end
    line = set[2]
    if handed.node == '-' or redis.pcall('SPUBLISH', handed.channel, handed.message) ~= 0 or handed.node ~= ARGV[1] then
      return 'released ' .. moment .. ' 0'
    end
  end
end

if not clock then
-- @include time
end
-- @include prelude

local only_wait = ARGV[3] ~= nil
if #KEYS ~= 1 or (#ARGV ~= 2 and #ARGV ~= 3) then
  return refuse('count')
elseif only_wait and ARGV[3] ~= 'wait' then
  return refuse('what')
elseif not is_id(caller) then
  return refuse('id')
end

-- @include hash
-- @include line
-- @include flush
-- @include waiters
-- @include readers
-- @include pump

local function end_reading(id)
  local alive, _, _, token, index = reading(id)
  if alive ~= nil then
    local forced = number('forced')
    remove_reader(id, index)
    return token > forced and 'released' or 'expired'
  end
end

local function end_writing(id)
  local text = get('writer')
  if text then
    local _, _, _, writes = parse(text)
    if writes == id then
      end_write()
      return 'released'
    end
  end
end

local function end_waiting(id)
  local entry = waiter(id)
  if not entry then
    return
  elseif entry.mode == 'u' then
    put('upgrader', false)
    forget(entry)
    tally(entry, -1)
  else
    unlink(entry)
  end
  return 'left'
end

return answer(function()
  local strange = open({ 'writer', 'readers', 'waiters', 'r:' .. caller, 'read_min', 'cached' })
  if strange then
    return strange
  end
  if handed then
    -- Nobody heard of the grant: its waiter is gone, and one step of the budget with it.
    put('writer', false)
    steps = steps - 1
    settle(true)
    return reply('released', more)
  end
  if only_wait then
    local id, _, deadline, token = writing()
    if id == caller then
      return reply('writing', 0, token, deadline)
    end
  end
  local left = end_waiting(caller)
  local ended = not only_wait and (end_writing(caller) or end_reading(caller))
  settle(true)
  return reply(ended or left or 'absent', more)
end)
