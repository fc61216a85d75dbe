-- The write of an acquisition becomes a read, by the same token. A cached one stays cached. Returns
-- its state.
local function become_reader(id, state, deadline, token)
  start_reader_phase()
  if is_cached(state) then
    state = recall_mode('k') == 'w' and 'c' or 'k' -- what readers asked for, they get
  end
  add_reader(id, state, deadline, token)
  return state
end
