-- The world of a script: what the server exposes of Lua, guarded against changes, and the table
-- `redis`.
--
-- Called once with a table of the functions that the host gives. Returns the function that runs a
-- script.

local host = ...
local error, pcall, rawget, rawset, select = error, pcall, rawget, rawset, select
local setmetatable, tonumber, tostring, type, xpcall = setmetatable, tonumber, tostring, type, xpcall
local floor, format, unpack = math.floor, string.format, unpack

-- Guarded tables
-- ------------------------------------------------------------------------------------------------

local guarded = {}

-- A front of a table: it reads like the table, and cannot be written.
local function guard(table, front)
  front = setmetatable(front or {}, {
    __index = table,
    __newindex = function()
      error('Attempt to modify a readonly table', 2)
    end,
    __metatable = false,
  })
  guarded[front] = true
  return front
end

local function refuse_guarded(table)
  if guarded[table] then
    error('Attempt to modify a readonly table', 0)
  end
end

-- Random numbers
-- ------------------------------------------------------------------------------------------------

-- The numbers that the server gives: the same ones after each start.
function math.random(...)
  local fraction, count = host.random(), select('#', ...)
  local low, high = ...
  if count == 0 then
    return fraction
  elseif count == 1 then
    low, high = 1, low
  elseif count > 2 then
    error('wrong number of arguments', 2)
  end
  low, high = tonumber(low), tonumber(high)
  if not low or not high or low > high then
    error('interval is empty', 2)
  end
  return floor(fraction * (high - low + 1)) + low
end

function math.randomseed(seed)
  host.seed(tonumber(seed) or 0)
end

-- The table `redis`
-- ---------------------------------------------------------------------------------------------

local redis = {
  LOG_DEBUG = 0,
  LOG_VERBOSE = 1,
  LOG_NOTICE = 2,
  LOG_WARNING = 3,
  REDIS_VERSION = '7.0.15',
  REDIS_VERSION_NUM = 0x0007000f,
}

-- What runs a call of so many words.
local four, eight, many = host.execute_four, host.execute_eight, host.execute_many
local execute = { [0] = four, four, four, four, four, eight, eight, eight, eight }

-- A number as the server prints it. The host sees it as Lua does, with fewer digits.
local function exact(...)
  local words, count = { ... }, select('#', ...)
  for index = 1, count do
    if type(words[index]) == 'number' then
      words[index] = format('%.17g', words[index])
    end
  end
  return unpack(words, 1, count)
end

local function execute_again(...)
  return host.execute_exact(select('#', ...), exact(...))
end

function redis.call(...)
  local count = select('#', ...)
  local reply, failure = (execute[count] or many)(count, ...)
  if failure == true then
    reply, failure = execute_again(...)
  end
  if failure then
    error({ err = failure }, 0)
  end
  return reply
end

function redis.pcall(...)
  local count = select('#', ...)
  local reply, failure = (execute[count] or many)(count, ...)
  if failure == true then
    reply, failure = execute_again(...)
  end
  if failure then
    return { err = failure }
  end
  return reply
end

-- What stands before the first space is the error's code. A text of one word is no code.
function redis.error_reply(...)
  local text = ...
  if select('#', ...) ~= 1 or type(text) ~= 'string' then
    return { err = 'ERR wrong number or type of arguments' }
  end
  text = text:gsub('^%-', ''):gsub('[\r\n]+$', '')
  if not text:find(' ', 1, true) then
    text = 'ERR ' .. text
  end
  return { err = text }
end

function redis.status_reply(...)
  local text = ...
  if select('#', ...) ~= 1 or type(text) ~= 'string' then
    return { err = 'ERR wrong number or type of arguments' }
  end
  return { ok = text }
end

local function raise(message)
  error({ err = 'ERR ' .. message }, 0)
end

function redis.sha1hex(...)
  if select('#', ...) ~= 1 then
    raise('wrong number of arguments')
  end
  local text = ...
  local has_text = type(text) == 'string' or type(text) == 'number'
  return host.sha1hex(has_text and tostring(text) or '')
end

-- Nothing is written anywhere.
function redis.log(...)
  local level = tonumber((...))
  if select('#', ...) < 2 then
    raise('redis.log() requires two arguments or more.')
  elseif not level then
    raise('First argument must be a number (log level).')
  elseif not (level > redis.LOG_DEBUG - 1 and level < redis.LOG_WARNING + 1) then
    raise('Invalid debug level.')
  end
end

function redis.replicate_commands()
  return true
end

-- The globals

local globals = { redis = guard(redis) }

for _, name in ipairs({
  'assert', 'collectgarbage', 'error', 'gcinfo', 'getmetatable', 'ipairs', 'load', 'loadstring', 'next', 'pairs',
  'rawequal', 'rawget', 'select', 'tonumber', 'tostring', 'type', 'unpack', 'xpcall', '_VERSION',
}) do
  globals[name] = _G[name]
end

for _, name in ipairs({ 'coroutine', 'math', 'string', 'table' }) do
  globals[name] = guard(_G[name])
end
getmetatable('').__metatable = false

function globals.rawset(table, key, value)
  refuse_guarded(table)
  return rawset(table, key, value)
end

function globals.setmetatable(table, metatable)
  refuse_guarded(table)
  return setmetatable(table, metatable)
end

-- Who catches an error table gets its text alone.
local function caught(ok, failure, ...)
  if not ok and type(failure) == 'table' then
    local text = rawget(failure, 'err')
    if type(text) == 'string' or type(text) == 'number' then
      return false, text
    end
  end
  return ok, failure, ...
end

function globals.pcall(...)
  return caught(pcall(...))
end

setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})

-- The real table of globals becomes a front, so that code which a script loads by itself is guarded
-- as well.
local names = {}
for name in pairs(_G) do
  names[#names + 1] = name
end
local _G = _G
for index = 1, #names do
  rawset(_G, names[index], nil)
end
globals._G = guard(globals, _G)

-- Running a script
-- ----------------------------------------------------------------------------------------------

local function place_of(failure)
  local text = 'ERR unknown error'
  if type(failure) ~= 'table' then
    text = 'ERR ' .. tostring(failure)
  elseif type(rawget(failure, 'err')) == 'string' then
    text = failure.err
  end
  return { err = text, line = host.line() }
end

return function(script, keys, args)
  globals.KEYS, globals.ARGV = keys, args
  return xpcall(script, place_of)
end
