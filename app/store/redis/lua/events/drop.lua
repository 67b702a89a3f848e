-- Forgets a generation of a shard, with its events, wherever they are.
-- KEYS: the generations of the shard, the slab, the generations that are cold, the shard.
-- ARGV: the generation, a new version of those that are cold.
-- Reply: how many there were of it.
-- Writes: all of its keys. The slab goes first, so that a Redis without memory lets the rest be written.

redis.call('UNLINK', KEYS[2])
local hot = redis.call('HDEL', KEYS[1], ARGV[1])
local cold = redis.call('HDEL', KEYS[3], ARGV[1])
if cold > 0 then redis.call('HSET', KEYS[4], 'colds', ARGV[2]) end
return hot + cold
