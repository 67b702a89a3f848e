-- Takes a role that nobody has, or that somebody has who is known to be dead, or renews it.
-- KEYS: its lease, its epoch.
-- ARGV: who, for how many ms, and what the name of a holder begins with who is known to be dead, or ''.
-- Reply: the epoch, or 0 when somebody else has it.
-- Writes: both; the epoch when the role changes hands.

local holder = redis.call('GET', KEYS[1])
local gone = holder and ARGV[3] ~= '' and string.sub(holder, 1, #ARGV[3]) == ARGV[3]
if holder and holder ~= ARGV[1] and not gone then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local epoch = redis.call('GET', KEYS[2])
if holder ~= ARGV[1] or not epoch then
  epoch = tostring((tonumber(epoch) or 0) + 1)
  redis.call('SET', KEYS[2], epoch)
end
return tonumber(epoch)
