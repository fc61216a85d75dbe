-- The fast path of a release beside a queue. After a write the queue is empty, or the next writer
-- (writer.lua) or the next readers (readers.lua) are let in. After a read the queue is empty, other
-- readers hold on, or the next writer is let in.
--
-- The conditions, in this order: the clock is past the last token; the queue is legible; no
-- upgrader waits; the caller does not wait, it holds, and it is not cached; no holder is revoked,
-- where readers are let in; beside readers, the holders keep out all waiters (rest.lua). Otherwise
-- `set` stays nil and the slow path decides. While readers are forced out, the bound of their
-- deadlines is 0: then they keep out no waiter.
-- @include server_time
local mine = 'r:' .. caller
local also = { 'readers', 'ticket', 'revoked', 'q:' .. caller, mine }
-- @include fast/queue
local readers, ticket, revoked, entry, reader = unpack(queue, 11)
readers = tonumber(readers or 0)
local ends, goes = tonumber(sub(line, 3, 15)), false
if #now_us_text ~= 16 or sub(line, 16) >= now_us_text or not is_legible or not readers or upgrader or entry then -- luacheck: ignore 542
  -- For the slow path.
elseif writer and readers == 0 and sub(writer, 31) == caller then
  gone, phase, goes = { 'writer' }, tonumber(ticket or ''), not readers_head
  if readers_head and phase and not revoked then
    local bound = nil
-- @include fast/rest
-- @include fast/readers
    if set then
      set[#set + 1], set[#set + 2] = 'phase', phase
    end
  end
elseif not writer and reader and find(reader, '^[ghb]%d+$') then
  local last, index = readers - 1, sub(reader, 31)
  local is_last = last == 0 and index == '0' and (tonumber(soonest) or 0) > now_ms
  gone = { mine, 'i:' .. last }
  if waiters == 0 then
    goes = is_last
  else
-- @include fast/rest
    if keeps_out(writers_head, readers_head, fair) then
      goes = is_last
      if last > 0 then
        set, said = { 'readers', last }, 'released ' .. now_ms_text .. ' 0'
-- @include fast/hole
      end
    end
  end
  if goes then
    gone[3], gone[4], gone[5] = 'readers', 'read_min', 'sweep'
  end
end
if goes and writers_head then
-- @include fast/writer
elseif goes and waiters == 0 and ends >= now_ms + KEY_GRACE and ends <= now_ms + IDLE_KEY_TTL then
  set = { 's', '2F' .. sub(line, 3, 31) }
  for _, field in ipairs({ 'ticket', 'phase', 'lapsed', 'revoked', 'forced' }) do
    gone[#gone + 1] = field
  end
end
