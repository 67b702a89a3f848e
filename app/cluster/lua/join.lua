-- Take the lease of a node id for an incarnation, and note that its MQTT session exists from now on.
-- KEYS  1 lease  2 sessions of the node id
-- ARGV  1 the incarnation (JSON)  2 its MQTT client id  3 lease time (ms)  4 how long a session may outlive it (ms)
--       5 an incarnation that may be replaced, or ''    6 the MQTT client id of that one
-- Reply nil when taken, else the incarnation that holds the lease. Repeating it changes nothing but the times.
-- The session of the replaced incarnation is noted to be adopted, also where the store has forgotten that it exists.
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] and held ~= ARGV[5] then return held end
redis.call('DEL', KEYS[1]) -- a removal first, so that Redis runs the rest also at maxmemory
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[1])
if ARGV[5] ~= '' and not redis.call('HGET', KEYS[2], ARGV[6]) then
  redis.call('HSET', KEYS[2], ARGV[6], '!' .. ARGV[5])
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return false
