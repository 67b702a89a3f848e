-- Keep a new fleet run whose targets are written, unless there is one with this id.
--
-- KEYS  1 run  2 targets
-- ARGV  1 fingerprint  2 plan  3 status  4 marks  5 digest of all targets  6 number of their chunks
--       7 for how long it is kept (ms)
-- Reply {fingerprint, created µs, '1' where it has ended} of the run that is there now; three times '' where chunks are
--       gone, and nothing was done
-- Writes the run, and how long both keys live. Repeated: it is there.

local known = redis.call('HMGET', KEYS[1], 'fingerprint', 'created', 'ended')
if known[1] then
  return {known[1], known[2], known[3] or ''}
end
if redis.call('HGET', KEYS[2], ARGV[5]) ~= ARGV[6] then
  return {'', '', ''}
end
local time = redis.call('TIME')
local created = string.format('%.0f', time[1] * 1000000 + time[2])
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'created', created, 'version', '1',
  'plan', ARGV[2], 'status', ARGV[3], 'marks', ARGV[4], 'frozen', ARGV[5],
  'total', string.format('%d', #ARGV[4]))
redis.call('PEXPIRE', KEYS[1], ARGV[7])
redis.call('PEXPIRE', KEYS[2], ARGV[7])
return {ARGV[1], created, ''}
