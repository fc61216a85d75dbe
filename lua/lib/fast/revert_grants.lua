-- Reverts the grants of a fast path whose message no client received. All grants of the fast path
-- count against the budget of the call.
for _, id in ipairs(handoff.undelivered) do
  revert_grant({ waiter = { id = id, mode = get('writer') and 'w' or 'r' } })
end
grants_left = grants_left - handoff.grant_count
