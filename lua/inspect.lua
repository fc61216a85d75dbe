-- Lists the holders and the waiters, one page at a time. Reads only.
--
-- KEYS[1]  the lock
-- ARGV[1]  the server's name
-- ARGV[2]  index of the first reader
-- ARGV[3]  first waiting writer (id, - for the head, none for no writers)
-- ARGV[4]  first waiting reader (id, - for the head, none for no readers)
-- ARGV[5]  most entries of each kind, 1 to 100
--
-- Reply, a list: status, now, 0
--   not_found  there is no such lock
--   lock       last token, writer, readers, waiters, upgrader, revoked token, readers of the page,
--              waiting writers of the page, waiting readers of the page
-- The writer is its record (empty: none), the upgrader a list of at most one waiter. A reader is
-- id, record; a waiter is id, record. Records are as in the hash, and may have expired. If a waiter
-- leaves between two pages, its list ends there.
-- Errors: WRONGTYPE, LOCKTYPE, LOCKVERSION, LOCKARGS.
-- Cost: HGET, TIME; of one of several holders HMGET, HGET for the upgrader, and at most five calls
-- for each entry.

-- @include constants
-- @include read_line
-- @include prelude

local first_index, page_size = integer_arg(2, 0, MAX_TIMESTAMP), integer_arg(5, 1, 100)
if #KEYS ~= 1 or #ARGV ~= 5 then
  return argument_error('number of keys or arguments')
elseif not first_index or not page_size then
  return argument_error('page')
elseif not is_word(ARGV[3], 40) or not is_word(ARGV[4], 40) then
  return argument_error('id')
end

-- @include field_cache
-- @include state_line

local function readers()
  local page = {}
  for index = first_index, math.min(first_index + page_size, number('readers')) - 1 do
    local id = reader_id(get('i:' .. format('%.0f', index)) or malformed_error('readers'))
    local record = get('r:' .. id) or malformed_error('readers')
    local _, _, token = decode_record(record)
    if token > number('forced_up_to') then
      page[#page + 1] = id
      page[#page + 1] = record
    end
  end
  return page
end

local function upgrader()
  local id = get('upgrader')
  return id and { id, get('q:' .. id) or malformed_error('upgrader') } or {}
end

local function waiters(head_field, id)
  local page = {}
  if id == '-' then
    id = get(head_field)
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
  local load_error = load({ 'writer', 'readers', 'waiters', 'upgrader', 'revoked_up_to', 'forced_up_to' })
  if load_error then
    return load_error
  elseif not line then
    return { 'not_found', now_ms, 0 }
  end
  return {
    'lock',
    now_ms,
    0,
    number('fence'),
    get('writer') or '',
    number('readers'),
    number('waiters'),
    upgrader(),
    number('revoked_up_to'),
    readers(),
    waiters('writers_head', ARGV[3]),
    waiters('readers_head', ARGV[4]),
  }
end)
