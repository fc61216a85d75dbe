-- A reader goes from the array, at `index`: the last one (`last`) fills the hole, and `set` gets
-- its fields. `gone` has the record of the reader that goes, and the last place. Leaves `set` nil
-- if the records are malformed.
if index ~= last .. '' then
  local moved = redis.call('HGET', KEYS[1], gone[2])
  local other = moved and tonumber(index) and redis.call('HGET', KEYS[1], 'r:' .. moved)
  if other then
    set[3], set[4], set[5], set[6] = 'r:' .. moved, sub(other, 1, 30) .. index, 'i:' .. index, moved
  else
    set = nil
  end
end
