-- Lists the holders of permits and the waiters, one page at a time. Reads only.
--
-- KEYS[1]  the semaphore
-- ARGV[1]  the server's name
-- ARGV[2]  index of the first holder
-- ARGV[3]  first waiter (id, - for the head, none for no waiters)
-- ARGV[4]  most entries of each kind, 1 to 100
--
-- Reply, a list: status, now, 0
--   not_found  there is no such semaphore
--   semaphore  last token, limit, permits in use, holders, waiters, holders of the page, waiters of
--              the page
-- A holder is id, record; a waiter is id, record. Records are as in the hash, and may have expired.
-- If a waiter leaves between two pages, the list ends there.
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS.
-- Cost: HGET, TIME, HMGET if there are waiters, and at most three calls for each entry.

-- @include constants
-- @include read_line
-- @include prelude

local first_index, page_size = integer_arg(2, 0, MAX_TIMESTAMP), integer_arg(4, 1, 100)
if #KEYS ~= 1 or #ARGV ~= 4 then
  return argument_error('number of keys or arguments')
elseif not first_index or not page_size then
  return argument_error('page')
elseif not is_word(ARGV[3], 40) then
  return argument_error('id')
end

-- @include field_cache
-- @include semaphore_state

local function holders()
  local page = {}
  for index = first_index, math.min(first_index + page_size, number('readers')) - 1 do
    local id = get('i:' .. format('%.0f', index)) or malformed_error('readers')
    page[#page + 1] = id
    page[#page + 1] = get('r:' .. id) or malformed_error('readers')
  end
  return page
end

local function waiters(id)
  local page = {}
  if id == '-' then
    id = get('head')
  end
  while id and id ~= '-' and #page < 2 * page_size do
    local record = get('q:' .. id)
    if not record then
      break
    end
    page[#page + 1] = id
    page[#page + 1] = record
    id = string.match(record, '^%a %S+ (%S+)') or malformed_error('waiter')
  end
  return page
end

return run(function()
  local load_error = load({})
  if load_error then
    return load_error
  elseif shape == 'N' then
    return { 'not_found', now_ms, 0 }
  end
  return {
    'semaphore',
    now_ms,
    0,
    number('fence'),
    number('limit'),
    number('used'),
    number('readers'),
    number('waiters'),
    holders(),
    waiters(ARGV[3]),
  }
end)
