-- Show a sign of life. A lease that ran out is taken up again, unless somebody has begun to adopt the session.
-- KEYS  1 lease  2 sessions of the node id
-- ARGV  1 the incarnation (JSON)  2 its MQTT client id  3 lease time (ms)  4 how long a session may outlive it (ms)
-- Reply 1 when the lease is ours, 0 when it is lost for good. Repeating it changes nothing but the times.
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[2], ARGV[2]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[2], ARGV[4]) -- needs no memory, and what follows it in a script runs also at maxmemory
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1
