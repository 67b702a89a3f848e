-- Keeps a part of a large write of a broker ahead of its rows, or makes all parts count, or forgets them.
--
-- KEYS  1 epoch of who owns them  2 rows  3 parts
-- ARGV  1 epoch of the writer  2 number of the write  3 number of the last one that was acknowledged to the writer
--       4 'put', 'count' or 'forget'  5 place of this part, from 0, or how many parts there are  6 how many rows are put
--       7... key and row of each, in turn, then the keys of rows to delete
-- Reply 'yes', 'late' (a later write of the same writer is there), 'fenced' (another owner) or 'forgotten' (Redis has
--       lost what it acknowledged)
-- Writes the parts, where a row to put has a '+' in front and one to delete is '-'. '#' has number and place of the last
-- part, '!' is there when they count: whoever reads the rows reads them as well then. Repeated: they are there.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'fenced'
end
local number, step, place = tonumber(ARGV[2]), ARGV[4], tonumber(ARGV[5])
local last = tonumber(redis.call('HGET', KEYS[2], '!') or 0)
if last < tonumber(ARGV[3]) then
  return 'forgotten'
end
if last > number then
  return 'late'
end
if step == 'forget' then
  redis.call('UNLINK', KEYS[3])
  return 'yes'
end
local begun, latest = string.match(redis.call('HGET', KEYS[3], '#') or '0 0', '^(%d+) (%d+)$')
begun, latest = tonumber(begun), tonumber(latest)
if begun > number then
  return 'late'
end
if step == 'count' then
  if begun ~= number or latest ~= place - 1 then
    return 'forgotten'
  end
  redis.call('HSET', KEYS[3], '!', ARGV[2])
  redis.call('HSET', KEYS[2], '!', ARGV[2])
  return 'yes'
end
if begun == number and latest > place then
  return 'yes'
end
if place == 0 and begun < number then
  redis.call('UNLINK', KEYS[3])
elseif begun ~= number or latest < place - 1 then
  return 'forgotten'
end
redis.call('HSET', KEYS[3], '#', ARGV[2] .. ' ' .. ARGV[5])
local deleted = 7 + 2 * ARGV[6]
for at = 7, deleted - 1, 2 do
  redis.call('HSET', KEYS[3], ARGV[at], '+' .. ARGV[at + 1])
end
for at = deleted, #ARGV do
  redis.call('HSET', KEYS[3], ARGV[at], '-')
end
return 'yes'
