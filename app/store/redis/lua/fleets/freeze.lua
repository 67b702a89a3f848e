-- Write a chunk of the targets of a fleet run that is being created. If nobody goes on with it, it goes by itself.
--
-- KEYS  1 run  2 targets
-- ARGV  1 digest of all targets  2 number of this chunk, from 0  3 chunk  4 for how long it waits for the next (ms)
-- Reply 'yes', 'there' (the run exists), or 'lost' (a chunk before this one is gone)
-- Writes targets, where there is no such run. Repeated: it is written once more.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 'there'
end
local written = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '0')
local number = tonumber(ARGV[2])
if number > written then
  return 'lost'
end
redis.call('HSET', KEYS[2], ARGV[1] .. ':' .. ARGV[2], ARGV[3], ARGV[1], string.format('%d', math.max(written, number + 1)))
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 'yes'
