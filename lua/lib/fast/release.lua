-- The fast path of a release beside a queue. A write ends: nobody waits, or the next writer or a
-- batch of readers is let in (grant.lua). A reader goes: nobody waits, or it was the last one and
-- the next writer is let in, or others hold on.
--
-- The conditions, in this order: the clock is past the last token; the queue is legible; no upgrader
-- waits; the caller does not wait; it holds, and is not cached; nobody is revoked or forced out. Of
-- a reader also: the others keep out all that wait (queue.lua). If one of them does not hold, `set`
-- stays nil and the slow path decides.
-- @include time
local mine = 'r:' .. caller
local also = { 'readers', 'ticket', 'revoked', 'forced', 'q:' .. caller, mine }
-- @include fast/queue
local readers, ticket, revoked, forced, entry, reader = unpack(queue, 11)
readers, ticket = tonumber(readers or 0), tonumber(ticket or '')
local ends, mode, bound, goes = tonumber(sub(line, 3, 15)), nil, nil, nil
if #stamp ~= 16 or sub(line, 16) >= stamp or not is_legible or not readers or upgrader or entry then -- luacheck: ignore 542
  -- For the slow path.
elseif writer and readers == 0 and sub(writer, 31) == caller then
  goes, gone = true, { 'writer' }
  if readers_head then
    phase, mode = ticket, ticket and not revoked and 'r' or nil
  elseif writers_head then
    mode, gone = 'w', {} -- its field has the next writer
  end
elseif not writer and reader and find(reader, '^[ghb]%d+$') and not forced then
  local is_last = readers == 1 and sub(reader, 31) == '0'
  if waiters == 0 then
    goes = is_last and (tonumber(soonest) or 0) > now
  elseif keeps_out(writers_head, readers_head, fair) then
    if readers > 1 then
      local last, index = readers - 1, sub(reader, 31)
      set, gone, said = { 'readers', last }, { mine, 'i:' .. last }, 'released ' .. moment .. ' 0'
-- @include fast/hole
    elseif is_last then
      goes, mode = true, 'w'
    end
  end
  if goes then
    gone, readers = { mine, 'i:0', 'readers', 'read_min', 'sweep' }, 0
  end
end
if goes and waiters == 0 and ends >= now + GRACE and ends <= now + KEEP then
  set = { 's', '2F' .. sub(line, 3, 31) }
  for _, field in ipairs({ 'ticket', 'phase', 'lapsed', 'revoked', 'forced' }) do
    gone[#gone + 1] = field
  end
elseif mode then
-- @include fast/grant
  if set and mode == 'r' then
    set[#set + 1], set[#set + 2] = 'phase', phase
  end
end
