-- Write or delete a schedule where it still stands as it was.
--
-- KEYS  1 schedules
-- ARGV  1 name  2 as it was ('' is none)  3 as it shall be ('' is none)  4 how many there may be
-- Reply 1 when it stands so, 0 when it stands otherwise, -1 when there are as many as there may be
-- Writes the schedule, and the number of changes in the field ''. Repeated: it stands so.

local known = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if known == ARGV[3] then
  return 1
end
if known ~= ARGV[2] then
  return 0
end
local changes = redis.call('HGET', KEYS[1], '')
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  if known == '' and #redis.call('HVALS', KEYS[1]) - (changes and 1 or 0) >= tonumber(ARGV[4]) then
    return -1
  end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
redis.call('HSET', KEYS[1], '', string.format('%.0f', (changes or 0) + 1))
return 1
