-- The fast path of a pump: nobody's turn has come, or readers go on to be let in (readers.lua).
--
-- The conditions, in this order: the call and the line are well formed; the clock is past the last
-- token; the holders keep out all waiters (rest.lua), or readers hold, no reader is dead or cached,
-- no upgrader waits, and no holder is revoked. Otherwise the slow path decides. While readers are
-- forced out, the bound of their deadlines is 0.
local sub, find = string.sub, string.find
local simple = #KEYS == 1
  and #ARGV == 2
  and line
  and #line == 31
  and find(line, '^2Q%d+$')
  and #now_us_text == 16
  and sub(line, 16) < now_us_text
  and #ARGV[2] <= 8
  and find(ARGV[2], '^[%w_-]+$')
if simple then
  local also = { 'readers', 'revoked' }
-- @include fast/queue
-- @include fast/rest
  local readers, revoked = unpack(queue, 11)
  readers = tonumber(readers or 0)
  local ends, bound, set, gone, life, done = tonumber(sub(line, 3, 15)), tonumber(soonest or ''), nil, {}, nil, nil
  if keeps_out(writers_head, readers_head, fair) then
    return 'pumped ' .. now_ms_text .. ' 0'
  elseif is_legible and not (upgrader or writer or cached or revoked) and readers and bound and bound > now_ms and readers_head then
-- @include fast/readers
  end
  if set then
-- @include fast/send
-- @include fast/tell
    if not handed.unheard[1] then
      return 'pumped ' .. now_ms_text .. ' ' .. handed.more
    end
  end
end
