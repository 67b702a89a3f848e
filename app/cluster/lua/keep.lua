-- Keep a copy of the access rules, unless one of a later version is there that somebody has kept lately.
-- KEYS  1 copy
-- ARGV  1 version  2 when the database was in accord with it (microseconds)  3 copy  4 its life (ms)
--       5 since when (microseconds) a later version must have been kept to stay
-- Repeating it changes nothing.
local kept = redis.call('HMGET', KEYS[1], 'version', 'at')
local version, at = tonumber(kept[1] or ''), tonumber(kept[2] or '')
if version and at and version > tonumber(ARGV[1]) and at >= tonumber(ARGV[5]) then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'at', ARGV[2], 'copy', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
