-- Takes a role that nobody has, or that somebody has who is known to be dead, or renews it.
-- KEYS: its lease, its epoch.
-- ARGV: who, for how many ms, what the name of a holder begins with who is known to be dead, or '', and the latest
--   epoch that the asker knows of where others keep it in other slots. Then an epoch is later than that one, and no
--   less than the time in milliseconds: this server may have forgotten what they keep.
-- Reply: the epoch, or 0 when somebody else has it.
-- Writes: both; the epoch when the role changes hands.

local holder = redis.call('GET', KEYS[1])
local gone = holder and ARGV[3] ~= '' and string.sub(holder, 1, #ARGV[3]) == ARGV[3]
if holder and holder ~= ARGV[1] and not gone then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local epoch, latest = tonumber(redis.call('GET', KEYS[2]) or 0), tonumber(ARGV[4])
if holder ~= ARGV[1] or epoch <= (latest or 0) then
  epoch = math.max(epoch, latest or 0) + 1
  if latest then
    local time = redis.call('TIME')
    epoch = math.max(epoch, time[1] * 1000 + math.floor(time[2] / 1000))
  end
  redis.call('SET', KEYS[2], string.format('%.0f', epoch))
end
return epoch
