-- Recalls. A cached holder may not be using the lock, so a waiter that it blocks requests the lock
-- from its client, on the channel of the grants. A sole holder is marked with 'c' and recalled
-- once, and again by the calls of the first waiter. Of many readers, a call recalls a few:
-- `recall_cursor` is the next index to check, downwards, and -1 after the last. No reader is
-- missed, because the last reader fills the place of a removed one.
local MAX_RECALLS_PER_CALL = 16 -- readers that one call checks
local pass_done = false -- whether this call has checked them
local recalls = {} -- the ids of the cached holders to recall at the end

local function queue_recall(id)
  if id ~= caller_id and recalls[#recalls] ~= id then
    recalls[#recalls + 1] = id
  end
end

-- Recalls the writer. `repeat_recall`: even if it was recalled before.
local function recall_writer(repeat_recall)
  local id, state, deadline, token = current_writer()
  if state == 'k' then
    set_writer(id, 'c', deadline, token)
    queue_recall(id)
  elseif state == 'c' and repeat_recall then
    queue_recall(id)
  end
end

-- Recalls readers. `repeat_recall`: begins again at the end if all were recalled before.
local function recall_readers(repeat_recall)
  if pass_done or number('cached_readers') == 0 then
    return
  end
  pass_done = true
  local readers, cursor = number('readers'), tonumber(get('recall_cursor'))
  if readers == 1 then
    local id = reader_at(0)
    local alive, state, deadline, token = find_reader(id)
    if alive and (state == 'k' or repeat_recall) then
      put_reader(id, 'c', deadline, token, 0)
      queue_recall(id)
    end
    return
  elseif not cursor or (cursor < 0 and repeat_recall) then
    cursor = readers - 1
  end
  cursor = math.min(cursor, readers - 1)
  local index_fields = {}
  for index = cursor, math.max(cursor - MAX_RECALLS_PER_CALL + 1, 0), -1 do
    index_fields[#index_fields + 1] = 'i:' .. index
  end
  load_fields(index_fields)
  for _, field in ipairs(index_fields) do
    local array_entry = get(field) or malformed_error('readers')
    if string.sub(array_entry, 1, 1) == '+' then
      queue_recall(reader_id(array_entry))
    end
  end
  if index_fields[1] then
    cursor = cursor - #index_fields
    put('recall_cursor', cursor)
  end
  if cursor >= 0 then
    has_more_work = 1
  end
end

-- Returns who recalls a cached holder in this state: 'w', 'r', or '-' for nobody. Reads it from the
-- queue as well as from the mark, which a failover may have lost.
local function recall_mode(state)
  if get('writers_head') or get('upgrader') then
    return 'w'
  elseif get('readers_head') then
    return 'r'
  end
  return state == 'c' and 'w' or '-'
end

-- Notifies holders after the write. Correctness does not depend on delivery. A cached holder is
-- sent "<now> <mode> <id>"; the mode is 'r' if only readers wait. A holder that a forced release
-- ended is sent "<now> f <id> <token>".
local function notify_holders(tag, mode)
  local function publish(kind, id, suffix)
    local channel = '{' .. tag .. '}rwlease:' .. string.sub(id, 1, CLIENT_ID_LEN)
    redis.pcall('SPUBLISH', channel, format('%.0f %s %s%s', now_ms, kind, id, suffix))
  end
  if recalls[1] and mode == 'r' and (get('writers_head') or get('upgrader')) then
    mode = 'w'
  end
  for _, id in ipairs(recalls) do
    publish(mode, id, '')
  end
  for _, holder in ipairs(force_released) do
    publish('f', holder[1], format(' %.0f', holder[2]))
  end
end
