-- The scripts are linted as assembled (`make lint-lua`): an operation with the shared parts that it includes.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV" }
max_line_length = false
ignore = { "211", "231", "241" } -- a shared part may define what one operation does not need
