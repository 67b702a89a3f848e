-- Forgets a generation of a shard, with its events.
-- KEYS: the generations of the shard, the slab.
-- ARGV: the generation.
-- Reply: how many there were of the first one.
-- Writes: both.

redis.call('UNLINK', KEYS[2])
return redis.call('HDEL', KEYS[1], ARGV[1])
