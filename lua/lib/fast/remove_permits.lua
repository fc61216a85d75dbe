-- Prepares the removal of a holder of permits, whose record ends with the texts `index` and
-- `permits`. The last holder, at `last_index`, fills its place in the array. After it: `removed` is
-- nil or false if the records are malformed, `moved_fields` are the fields of the moved holder.
local removed, moved_fields = permits, {}
if removed and index ~= last_index .. '' then
  local moved_id = redis.call('HGET', KEYS[1], 'i:' .. last_index)
  local moved_record = moved_id and redis.call('HGET', KEYS[1], 'r:' .. moved_id)
  local moved_permits = moved_record and string.match(moved_record, ' %d+$', 31)
  removed = moved_permits
  if removed then
    moved_fields = { 'r:' .. moved_id, sub(moved_record, 1, 30) .. index .. moved_permits, 'i:' .. index, moved_id }
  end
end
