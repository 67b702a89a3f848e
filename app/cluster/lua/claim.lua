-- Get the right to adopt the MQTT session of an incarnation that does not hold its lease.
-- KEYS  1 lease  2 sessions of the node id  3 the adoption of this session
-- ARGV  1 MQTT client id of the session  2 the adopting incarnation's client id  3 how long the right lasts (ms)
-- Reply 1 when it is ours, 0 when the incarnation lives, its session is gone, or another node adopts it.
-- The mark '!' ends the incarnation: `renew` finds another value. Repeating it prolongs the right.
local known = redis.call('HGET', KEYS[2], ARGV[1])
if not known or redis.call('GET', KEYS[1]) == known then return 0 end
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[2] then return 0 end
if string.sub(known, 1, 1) ~= '!' then redis.call('HSET', KEYS[2], ARGV[1], '!' .. known) end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
return 1
