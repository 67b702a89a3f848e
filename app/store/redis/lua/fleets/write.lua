-- Change a fleet run, where nobody has changed it since it was read, and nobody else drives it.
--
-- KEYS  1 run  2 targets  3 results  4 epoch
-- ARGV  1 the version that was read  2 epoch of the driver, '' of a person  3 status  4 marks
--       5 for how long an ended run is kept (ms), '' as long as it goes on  6... index of a target and its result, in turn
-- Reply 'yes', 'otherwise' (changed meanwhile), 'fenced' (another epoch) or 'gone'
-- Writes run and results, and how long each key lives; removes the epoch of a run that is gone. Repeated: it was changed
-- meanwhile.

local version = redis.call('HGET', KEYS[1], 'version')
if not version then
  redis.call('DEL', KEYS[4])
  return 'gone'
end
if ARGV[2] ~= '' and redis.call('GET', KEYS[4]) ~= ARGV[2] then
  return 'fenced'
end
if version ~= ARGV[1] then
  return 'otherwise'
end
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version + 1), 'status', ARGV[3], 'marks', ARGV[4])
for place = 6, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[place], ARGV[place + 1])
end
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'ended', '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.call('PEXPIRE', KEYS[2], ARGV[5])
end
local left = redis.call('PTTL', KEYS[1])
redis.call('PEXPIRE', KEYS[3], left)
redis.call('PEXPIRE', KEYS[4], left)
return 'yes'
