-- The arguments by which a fenced value knows its writer.
local token, sequence = integer_arg(3, 1, MAX_SAFE_INTEGER), integer_arg(5, 1, MAX_SAFE_INTEGER)
local writer, predecessor, retention = ARGV[4], ARGV[6], integer_arg(7, 1, MAX_DURATION)
if #KEYS ~= 1 or #ARGV ~= ARG_COUNT then
  return argument_error('number of keys or arguments')
elseif ARGV[2] == '' or #ARGV[2] > 512 then
  return argument_error('lock')
elseif not token then
  return argument_error('token')
elseif not is_id(writer) then
  return argument_error('writer')
elseif not sequence then
  return argument_error('sequence')
elseif predecessor ~= '-' and not is_id(predecessor) then
  return argument_error('predecessor')
elseif not retention then
  return argument_error('retention')
end
token = format('%016.0f', token)
