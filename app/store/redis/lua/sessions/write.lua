-- Writes rows of a broker, all or none, for as long as they are the writer's.
--
-- KEYS  1 epoch of who owns them  2 rows
-- ARGV  1 epoch of the writer  2 number of this write  3 number of the last one that was acknowledged to the writer
--       4 how many rows are put  5... key and row of each, in turn, then the keys of rows to delete
-- Reply 'yes', 'late' (a later write of the same writer is there), 'fenced' (another owner) or 'forgotten' (Redis has
--       lost what it acknowledged)
-- Writes the rows. Repeated: they are there.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'fenced'
end
local last = tonumber(redis.call('HGET', KEYS[2], '!') or 0)
if last < tonumber(ARGV[3]) then
  return 'forgotten'
end
if last > tonumber(ARGV[2]) then
  return 'late'
end
redis.call('HSET', KEYS[2], '!', ARGV[2])
local deleted = 5 + 2 * ARGV[4]
for place = 5, deleted - 1, 2 do
  redis.call('HSET', KEYS[2], ARGV[place], ARGV[place + 1])
end
for place = deleted, #ARGV do
  redis.call('HDEL', KEYS[2], ARGV[place])
end
return 'yes'
