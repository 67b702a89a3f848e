-- Keep a new fleet run, unless there is one with this id.
--
-- KEYS  1 run  2 targets
-- ARGV  1 fingerprint  2 plan  3 status  4 marks  5 targets  6 for how long it is kept (ms)
-- Reply {fingerprint, created µs, '1' where it has ended} of the run that is there now
-- Writes both. Repeated: it is there.

local known = redis.call('HMGET', KEYS[1], 'fingerprint', 'created', 'ended')
if known[1] then
  return {known[1], known[2], known[3] or ''}
end
local time = redis.call('TIME')
local created = string.format('%.0f', time[1] * 1000000 + time[2])
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'created', created, 'version', '1',
  'plan', ARGV[2], 'status', ARGV[3], 'marks', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('SET', KEYS[2], ARGV[5], 'PX', ARGV[6])
return {ARGV[1], created, ''}
