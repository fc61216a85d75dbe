-- A reader goes from the array, at `index`: the last one (`last`) fills the hole, and `set` gets
-- its fields. `gone` has the record of the reader that goes, and the last place. Leaves `set` nil
-- if the records are malformed.
if index ~= last_index .. '' then
  local moved_id = redis.call('HGET', KEYS[1], removed_fields[2])
  local moved_record = moved_id and tonumber(index) and redis.call('HGET', KEYS[1], 'r:' .. moved_id)
  if moved_record then
    new_fields[3], new_fields[4], new_fields[5], new_fields[6] = 'r:' .. moved_id, sub(moved_record, 1, 30) .. index, 'i:' .. index, moved_id
  else
    new_fields = nil
  end
end
