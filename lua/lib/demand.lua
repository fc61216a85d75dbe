-- What an acquire, a poll or an upgrade requests.
local QUEUE_TERMS_PATTERN = '^(%d+) (%d+) (%d+) ([%w_-]+)$'

-- Reads the place, which only a waiter needs: so the fast paths do not look at it. Returns an
-- error reply if it is malformed.
local function read_place(asked)
  local window, ttl, limit, node = string.match(asked.place, QUEUE_TERMS_PATTERN)
  asked.window, asked.ttl, asked.limit, asked.node = tonumber(window), tonumber(ttl), tonumber(limit), node
  if not node or asked.window < 1 or asked.window > MAX_DURATION or asked.ttl < 1 or asked.ttl > MAX_DURATION or asked.limit > MAX_TIMESTAMP then
    return refuse('place')
  elseif #node > 40 then
    return refuse('subscription')
  end
end

-- The flags and the tokens of an acquire. Returns an error reply if they are malformed.
local function read_flags(asked, at)
  local fairness, k, t = string.match(ARGV[5], '^([fr])(k?)(t?)$')
  asked.fairness, asked.cached, asked.soft = fairness, k == 'k', t == 't'
  asked.tokens = asked.cached and whole(6, 1, TOKEN_BLOCK) or ARGV[6] == '1' and 1
  if not fairness or (asked.soft and #ARGV ~= at + 1) then
    return refuse('flags')
  elseif not asked.tokens then
    return refuse('tokens')
  end
end

-- `at`: where the tag is. Before it is what `read_own` reads, or the token of an upgrade; behind it
-- the place, and the ticket of an acquire.
local function read_demand(at, read_own)
  local upgrades = at == 6
  local asked = {
    not_after = whole(2, 0, MAX_TIMESTAMP),
    id = ARGV[3],
    lease = whole(4, 1, MAX_DURATION),
    fairness = 'f',
    tag = ARGV[at],
    place = ARGV[at + 1],
    waits = ARGV[at + 1] ~= nil,
    ticket = 0,
    tokens = 1,
  }
  if #KEYS ~= 1 or #ARGV < at or #ARGV > (upgrades and at + 1 or at + 2) then
    return nil, refuse('count')
  elseif not asked.not_after then
    return nil, refuse('not_after')
  elseif not is_id(asked.id) then
    return nil, refuse('id')
  elseif not asked.lease then
    return nil, refuse('lease')
  elseif not is_word(asked.tag, 8) then
    return nil, refuse('tag')
  end
  if upgrades then
    asked.token = whole(5, 1, MAX_SAFE_INTEGER)
    if not asked.token then
      return nil, refuse('token')
    end
  else
    local bad = read_own(asked, at)
    if bad then
      return nil, bad
    end
  end
  if #ARGV == at + 2 then
    asked.ticket = whole(at + 2, 1, MAX_SAFE_INTEGER)
    if not asked.ticket then
      return nil, refuse('ticket')
    end
  end
  return asked
end
