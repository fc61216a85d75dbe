-- Turns the write of an acquisition into a read with the same token. A cached lease stays cached.
-- Returns the new state.
local function become_reader(id, state, deadline, token)
  start_reader_phase()
  if is_cached(state) then
    state = recall_mode('k') == 'w' and 'c' or 'k' -- a recall by readers ends: they are granted the lock
  end
  add_reader(id, state, deadline, token)
  return state
end
