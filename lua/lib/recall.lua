-- Recalls. A cached holder may not be using the lock: whoever it blocks asks its client for it, by
-- the channel that grants use. A sole holder is marked with `c` and asked once, and again by the
-- calls of the first waiter. Of many readers a call asks a few; `recall` is the next index to look
-- at, downwards, -1 when all have been asked. The last reader fills a hole, so none is passed over.
local MAX_RECALLS_PER_CALL = 16 -- readers that one call looks at
local pass_done = false -- whether this call has
local recalls = {} -- cached holders to be asked at the end, by their ids

local function queue_recall(id)
  if id ~= caller_id and recalls[#recalls] ~= id then
    recalls[#recalls + 1] = id
  end
end

-- The writer that holds; `again`: also one that was asked before.
local function recall_writer(repeat_recall)
  local id, state, deadline, token = current_writer()
  if state == 'k' then
    set_writer(id, 'c', deadline, token)
    queue_recall(id)
  elseif state == 'c' and repeat_recall then
    queue_recall(id)
  end
end

-- The readers; `again`: from the end, if all have been asked before.
local function recall_readers(repeat_recall)
  if pass_done or number('cached') == 0 then
    return
  end
  pass_done = true
  local readers, cursor = number('readers'), tonumber(get('recall'))
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
    put('recall', cursor)
  end
  if cursor >= 0 then
    has_more_work = 1
  end
end

-- What recalls a cached holder of this state: 'w' or 'r', or '-'. It is read from the queue as well
-- as from the mark, which a failover may have lost.
local function recall_mode(state)
  if get('writers_head') or get('upgrader') then
    return 'w'
  elseif get('readers_head') then
    return 'r'
  end
  return state == 'c' and 'w' or '-'
end

-- Tells holders what they must know, once all is written. Nothing depends on whether they hear it.
-- Asks for what is cached by "<now> <mode> <id>", whose mode is 'r' if only readers want it; those
-- that a forced release has ended are told so by "<now> f <id> <token>".
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
