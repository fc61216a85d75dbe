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
-- These are fast paths, as is a release beside a queue.
local line, caller = redis.pcall('HGET', KEYS[1], 's'), ARGV[2]
local time_reply, now_us_text, now_ms_text, now_ms, handed
local said = 'released 0 0'
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
    local flag = sub(line, 45, 45)
    if index and last == 0 and (flag == '0' or flag == '2') then
      set = { 's', '2F' .. sub(line, 3, 31) }
      gone = flag == '0' and { mine, 'i:0' } or { mine, 'i:0', 'ticket', 'phase', 'lapsed' }
    elseif index and last > 0 then
      set, gone = { 's', sub(line, 1, 45) .. last }, { mine, 'i:' .. last }
-- @include fast/hole
    end
  elseif shape == 'Q' and digits == 31 and #line == 31 then
-- @include fast/release
  end
  if set then
-- @include fast/send
    if not handed then
      return said
    end
-- @include fast/tell
    if not handed.unheard[1] then
      return 'released ' .. now_ms_text .. ' ' .. handed.more
    end
  end
end

if not time_reply then
-- @include server_time
end
-- @include prelude

local only_wait = ARGV[3] ~= nil
if #KEYS ~= 1 or (#ARGV ~= 2 and #ARGV ~= 3) then
  return argument_error('count')
elseif only_wait and ARGV[3] ~= 'wait' then
  return argument_error('what')
elseif not is_id(caller) then
  return argument_error('id')
end

-- @include field_cache
-- @include state_line
-- @include flush
-- @include wait_queue
-- @include readers
-- @include grant_waiters

local function end_reading(id)
  local alive, _, _, token, index = find_reader(id)
  if alive ~= nil then
    local forced = number('forced')
    remove_reader(id, index)
    return token > forced and 'released' or 'expired'
  end
end

local function end_writing(id)
  local text = get('writer')
  if text then
    local _, _, _, writes = decode_record(text)
    if writes == id then
      start_reader_phase()
      return 'released'
    end
  end
end

local function end_waiting(id)
  local entry = load_waiter(id)
  if not entry then
    return
  elseif entry.mode == 'u' then
    put('upgrader', false)
    delete_waiter(entry)
    count_waiter(entry, -1)
  else
    unlink(entry)
  end
  return 'left'
end

return run(function()
  local load_error = load({ 'writer', 'readers', 'waiters', 'r:' .. caller, 'read_min', 'cached' })
  if load_error then
    return load_error
  end
  if handed then
-- @include fast/unheard
    finish(true)
    return ok_reply('released', has_more_work)
  end
  if only_wait then
    local id, _, deadline, token = current_writer()
    if id == caller then
      return ok_reply('writing', 0, token, deadline)
    end
  end
  local left = end_waiting(caller)
  local ended = not only_wait and (end_writing(caller) or end_reading(caller))
  finish(true)
  return ok_reply(ended or left or 'absent', has_more_work)
end)
