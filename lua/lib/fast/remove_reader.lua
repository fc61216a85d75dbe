-- Removes the reader at `index` from the array. The last reader, at `last_index`, fills its place:
-- `new_fields` gets its fields. `removed_fields` has the record of the removed reader and the last
-- place. Sets `new_fields` to nil if the records are malformed.
if index ~= last_index .. '' then
  local moved_entry = redis.call('HGET', KEYS[1], removed_fields[2])
  local moved_id = moved_entry and (sub(moved_entry, 1, 1) == '+' and sub(moved_entry, 2) or moved_entry)
  local moved_record = moved_id and tonumber(index) and redis.call('HGET', KEYS[1], 'r:' .. moved_id)
  if moved_record then
    new_fields[3], new_fields[4], new_fields[5], new_fields[6] =
      'r:' .. moved_id, sub(moved_record, 1, 30) .. index, 'i:' .. index, moved_entry
  else
    new_fields = nil
  end
end
