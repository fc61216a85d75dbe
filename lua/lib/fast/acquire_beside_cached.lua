-- Grants a read beside cached readers if the queue is empty. The line keeps its shape.
--
-- Before it: the conditions of enqueue.lua up to the caller; a cached reader holds; the queue is
-- empty, and no upgrader waits.
--
-- The conditions, in this order: the queue is valid; no writer holds and no reader is expired; the
-- reader is not the one that makes the hash a table; no recall ends with it; the key lives long
-- enough.
local are_readers_alive = is_queue_valid and not writer and read_min and #read_min == 13 and read_min > now_ms_text
local counts = are_readers_alive and redis.call('HMGET', KEYS[1], 'readers', 'recall_cursor') or {}
local index, recall, cached_count, deadline = tonumber(counts[1] or ''), counts[2], tonumber(cached), now_ms + lease
if are_readers_alive
  and index and cached_count and index ~= LISTPACK_READERS
  and not (wants_cached and recall)
  and deadline + KEY_GRACE <= sub(line, 3, 15) + 0
then
  local deadline_text = deadline .. ''
  local granted_fields = {
    's', '2Q' .. sub(line, 3, 15) .. now_us_text,
    'r:' .. caller, (wants_cached and 'k' or 'h') .. deadline_text .. now_us_text .. index,
    'i:' .. index, wants_cached and '+' .. caller or caller,
    'readers', index + 1,
    'read_min', deadline_text < read_min and deadline_text or read_min,
    'cached_readers', wants_cached and cached_count + 1 or cached,
  }
  if type(redis.pcall('HSET', KEYS[1], unpack(granted_fields))) == 'number' then
    return 'granted ' .. now_ms_text .. ' 0 ' .. caller .. ' ' .. now_us_text .. ' ' .. deadline_text
      .. (wants_cached and ' ' .. now_us_text .. ' -' or '')
  end
end
