-- The slow path goes on after grants of a fast path of which nobody heard: it takes them back, and
-- the steps that they took are of this call's budget.
for _, id in ipairs(handed.unheard) do
  take_back({ entry = { id = id, mode = get('writer') and 'w' or 'r' } })
end
steps = steps - handed.count
