-- The slow path takes back the grants of a fast path whose message no client received. Their steps
-- count against the budget of the call.
for _, id in ipairs(handed.unheard) do
  take_back({ entry = { id = id, mode = get('writer') and 'w' or 'r' } })
end
steps = steps - handed.count
