-- What an acquire, a poll or an upgrade requests.
local function read_demand(with_token)
  local asked = {
    not_after = whole(2, 0, NEVER),
    id = ARGV[3],
    lease = whole(4, 1, LONGEST),
    fairness = ARGV[5],
    waits = #ARGV > 5,
  }
  if #KEYS ~= 1 or (#ARGV ~= 5 and #ARGV ~= 11) then
    return nil, refuse('count')
  elseif not asked.not_after then
    return nil, refuse('not_after')
  elseif not is_id(asked.id) then
    return nil, refuse('id')
  elseif not asked.lease then
    return nil, refuse('lease')
  elseif with_token then
    asked.token = whole(5, 1, MOST_EXACT)
    if not asked.token then
      return nil, refuse('token')
    end
  elseif asked.fairness ~= 'f' and asked.fairness ~= 'r' then
    return nil, refuse('fairness')
  end
  if asked.waits then
    asked.window, asked.ttl = whole(6, 1, LONGEST), whole(7, 1, LONGEST)
    asked.ticket, asked.limit = whole(8, 0, MOST_EXACT), whole(9, 0, NEVER)
    asked.node, asked.tag = ARGV[10], ARGV[11]
    if not (asked.window and asked.ttl and asked.ticket and asked.limit) then
      return nil, refuse('waiting')
    elseif not is_word(asked.node, 40) or not is_word(asked.tag, 8) then
      return nil, refuse('subscription')
    end
  end
  return asked
end
