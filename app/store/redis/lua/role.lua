-- Takes a role that nobody has, or renews it.
-- KEYS: its lease, its epoch.
-- ARGV: who, for how many ms.
-- Reply: the epoch, or 0 when somebody else has it.
-- Writes: both; the epoch when the role changes hands.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local epoch = redis.call('GET', KEYS[2])
if not holder or not epoch then
  epoch = tostring((tonumber(epoch) or 0) + 1)
  redis.call('SET', KEYS[2], epoch)
end
return tonumber(epoch)
