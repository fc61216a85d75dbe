-- The arguments of an acquire, a poll or an upgrade.
local QUEUE_TERMS_PATTERN = '^(%d+) (%d+) (%d+) ([%w_-]+)$'

-- Parses the queue terms, which only a waiter sends: a fast path does not need them. Returns an
-- error reply if they are malformed.
local function parse_queue_terms(args)
  local window, ttl, max_waiters, node = string.match(args.queue_terms, QUEUE_TERMS_PATTERN)
  args.window, args.ttl, args.max_waiters, args.node = tonumber(window), tonumber(ttl), tonumber(max_waiters), node
  if not node or args.window < 1 or args.window > MAX_DURATION or args.ttl < 1 or args.ttl > MAX_DURATION
    or args.max_waiters > MAX_TIMESTAMP then
    return argument_error('queue terms')
  elseif #node > 40 then
    return argument_error('node')
  end
end

-- Parses the flags and the number of tokens. Returns an error reply if they are malformed.
local function parse_flags(args, tag_index)
  local fairness, cached_flag, try_flag = string.match(ARGV[5], '^([fr])(k?)(t?)$')
  args.fairness, args.cached, args.is_cached_try = fairness, cached_flag == 'k', try_flag == 't'
  args.tokens = args.cached and integer_arg(6, 1, TOKEN_BLOCK) or ARGV[6] == '1' and 1
  if not fairness or (args.is_cached_try and #ARGV ~= tag_index + 1) then
    return argument_error('flags')
  elseif not args.tokens then
    return argument_error('tokens')
  end
end

-- Parses the arguments. `tag_index` is the index of the hash tag. `parse_own` parses the arguments
-- before it (an upgrade has its token there); after it come the queue terms, and the ticket of an
-- acquire. Returns the arguments, or nil and an error reply.
local function parse_acquire_args(tag_index, parse_own)
  local is_upgrade = tag_index == 6
  local args = {
    not_after = integer_arg(2, 0, MAX_TIMESTAMP),
    id = ARGV[3],
    lease = integer_arg(4, 1, MAX_DURATION),
    fairness = 'f',
    tag = ARGV[tag_index],
    queue_terms = ARGV[tag_index + 1],
    can_wait = ARGV[tag_index + 1] ~= nil,
    ticket = 0,
    tokens = 1,
  }
  if #KEYS ~= 1 or #ARGV < tag_index or #ARGV > (is_upgrade and tag_index + 1 or tag_index + 2) then
    return nil, argument_error('number of keys or arguments')
  elseif not args.not_after then
    return nil, argument_error('not_after')
  elseif not is_id(args.id) then
    return nil, argument_error('id')
  elseif not args.lease then
    return nil, argument_error('lease')
  elseif not is_word(args.tag, 8) then
    return nil, argument_error('tag')
  end
  if is_upgrade then
    args.token = integer_arg(5, 1, MAX_SAFE_INTEGER)
    if not args.token then
      return nil, argument_error('token')
    end
  else
    local args_error = parse_own(args, tag_index)
    if args_error then
      return nil, args_error
    end
  end
  if #ARGV == tag_index + 2 then
    args.ticket = integer_arg(tag_index + 2, 1, MAX_SAFE_INTEGER)
    if not args.ticket then
      return nil, argument_error('ticket')
    end
  end
  return args
end
