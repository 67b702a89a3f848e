-- Says that a generation of a shard is in the cold tier, and forgets its events here; or gives it other files there.
-- KEYS: the shard, its generations, those that are cold, the slab of this one.
-- ARGV: the generation, its files as the catalogue has them, the position of its last event, a new version.
-- Reply: 1, or 0 when there is no such generation, or it is current.
-- Writes: all of its keys. `mqtt:cold:{t}` has for each generation "first last count size files".

local known = redis.call('HMGET', KEYS[1], 'generation', 'cold')
if (tonumber(known[1]) or 1) <= tonumber(ARGV[1]) then return 0 end
local cut = redis.call('HGET', KEYS[2], ARGV[1])
if cut then
  redis.call('HDEL', KEYS[2], ARGV[1])
  redis.call('UNLINK', KEYS[4])
else
  cut = redis.call('HGET', KEYS[3], ARGV[1])
  if not cut then return 0 end
end
redis.call('HSET', KEYS[3], ARGV[1], string.match(cut, '^%d+ %d+ %d+ %d+') .. ' ' .. ARGV[2])
redis.call('HSET', KEYS[1], 'colds', ARGV[4])
if tonumber(ARGV[3]) > (tonumber(known[2]) or 0) then redis.call('HSET', KEYS[1], 'cold', ARGV[3]) end
return 1
