-- @layer
-- Who is next. Whatever frees a lock ends here, and grants it to the waiters whose turn it is, in a
-- bounded number of steps; what is left over is said by `more`.
--
-- Phase-fair: waiting writers are first in, first out, and so are waiting readers. When a write
-- ends, the readers that wait by then go before the next writer (`phase` is the last of their
-- tickets); when the last reader is gone, the next writer goes. The one upgrader goes before all.
-- @include turns
local claimed = 'h' -- the state that its claim gives it
local block = 1 -- tokens that its write takes

-- Raises the last token to the end of a block that begins now: a cached write owns its tokens, from
-- the one that it was granted by to the last one of the lock.
local function mint_block(count)
  if count > 1 then
    put('fence', math.max(number('fence'), us + count - 1))
    cover(math.floor(number('fence') / 1000))
  end
end

-- A write has ended: the readers that wait by now go before the next writer.
local function end_write()
  put('writer', false)
  if get('readers_head') then
    put('phase', number('ticket'))
  end
end

-- The writer that holds: id, state, deadline, token. A dead one is removed.
local function writing()
  local text = get('writer')
  if not text then
    return
  end
  local state, deadline, token, id = parse(text)
  if deadline > now then
    return id, state, deadline, token
  end
  if state == 'g' then
    lapse(id, deadline)
  end
  end_write()
end

local function write(id, state, deadline, token)
  put('writer', record(state, deadline, token, id))
  cover(deadline)
end

-- The deadline that a claim of this lease gives it: what is revoked is not made longer.
local function claimed_until(deadline, token, wanted)
  return token > number('revoked') and math.max(deadline, now + wanted) or deadline
end

-- The claim is the waiter's own affair: until it comes, a grant lasts for the waiter's window. The
-- caller has its full lease at once.
local function grant(entry)
  local token = mint()
  local asks = entry.id == me
  local state, deadline = asks and claimed or 'g', now + (asks and entry.lease or entry.window)
  if entry.mode == 'u' then
    local _, _, until_then, _, index = reading(entry.id)
    deadline = math.max(deadline, until_then)
    remove_reader(entry.id, index)
    drop('upgrader')
    forget(entry)
    tally(entry, -1)
  else
    unlink(entry)
  end
  if entry.mode == 'r' then
    add_reader(entry.id, state, deadline, token)
  else
    write(entry.id, state, deadline, token)
    if asks then
      mint_block(block)
    end
  end
  if not asks then
    grants[#grants + 1] = { entry = entry, deadline = deadline, token = token }
  end
end

-- The upgrader, if it lives and still reads, and its lease may be made longer.
local function upgrading()
  local id = get('upgrader')
  if id then
    local entry = waiter(id)
    local reads, _, _, token = reading(id)
    if entry and reads and token > number('revoked') and (id == me or is_alive(entry)) then
      return entry
    end
    put('upgrader', false)
    if entry then
      forget(entry)
      tally(entry, -1)
    end
  end
end

-- True if more than `others` readers are left after looking for dead ones. So many living ones
-- decide it: then the dead are in nobody's way, and later calls look for them.
local function blocked_by_readers(others)
  if number('readers') > others and looks > 0 then
    local goes_on, living = sweep(looks)
    if goes_on and living <= others then
      more = 1
    end
    looks = 0
  end
  return number('readers') > others
end

local function reads_next(reader, waits_to_write)
  return not waits_to_write or reader.ticket <= number('phase') or (reader.fairness == 'r' and number('fair') == 0)
end

-- Grants one waiter its turn; false if nobody can go. The look at the readers may show that the
-- client of the next waiter is gone: then another waiter is next.
local function step()
  if writing() then
    return false
  end
  local upgrader = upgrading()
  if upgrader then
    if blocked_by_readers(1) then
      return upgrading() ~= upgrader
    end
    grant(upgrader)
    return true
  end
  local next_reader, next_writer = first('r'), first('w')
  if steps <= 0 then
    return false
  elseif next_reader and reads_next(next_reader, next_writer) then
    grant(next_reader)
    return true
  elseif not next_writer then
    -- The dead are in nobody's way, and go by and by; but readers that a forced release cut off
    -- are to be gone soon.
    local forced = get('forced')
    looks = math.min(looks, forced and MAX_READERS_CHECKED or MAX_READERS_CHECKED_UNBLOCKED)
    if sweep(looks) and forced then
      more = 1
    end
    looks = 0
    return false
  elseif blocked_by_readers(0) then
    return first('w') ~= next_writer
  end
  next_writer = first('w')
  if next_writer and steps > 0 then
    grant(next_writer)
  end
  return true
end

local function pump()
  while steps > 0 and step() do
    steps = steps - 1
  end
  if steps <= 0 and (get('readers_head') or get('writers_head') or get('upgrader')) and not get('writer') then
    more = 1
  end
end

-- @include tell
