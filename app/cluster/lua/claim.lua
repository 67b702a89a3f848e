-- Get the right to adopt the MQTT session of an incarnation that does not hold its lease, or that lost its connection.
-- KEYS  1 lease  2 sessions of the node id  3 the adoption of this session
-- ARGV  1 MQTT client id of the session  2 the adopting incarnation's client id  3 how long the right lasts (ms)
--       4 '1' when the broker has said that the session has no connection  5 how long the session is remembered (ms)
-- Reply 1 when it is ours, 0 when the incarnation lives, its session is gone, or another node adopts it.
-- The mark '!' ends the incarnation: `renew` finds another value. Repeating it prolongs the right.
local known = redis.call('HGET', KEYS[2], ARGV[1])
if not known then return 0 end
local lives = redis.call('GET', KEYS[1]) == known
if lives and ARGV[4] ~= '1' then return 0 end
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[2] and holder ~= 'adopted' then return 0 end
redis.call('PEXPIRE', KEYS[2], ARGV[5])
if lives then redis.call('DEL', KEYS[1]) end
if string.sub(known, 1, 1) ~= '!' then redis.call('HSET', KEYS[2], ARGV[1], '!' .. known) end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
return 1
