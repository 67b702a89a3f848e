-- Lets a shard go on in this generation, if it is not there already.
-- KEYS: the shard, its generations.
-- ARGV: the generation.
-- Reply: 1, or 0 when nothing was to be done.
-- Writes: both.

local current = tonumber(redis.call('HGET', KEYS[1], 'generation')) or 1
if current >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'generation', ARGV[1])
for _, number in ipairs({tostring(current), ARGV[1]}) do
  if not redis.call('HGET', KEYS[2], number) then redis.call('HSET', KEYS[2], number, '0 0 0 0') end
end
return 1
