-- Note the MQTT session of a dead incarnation that the store has forgotten, so that it can be claimed.
-- KEYS  1 lease  2 sessions of the node id  3 the adoption of this session
-- ARGV  1 MQTT client id of the session  2 '!' and the incarnation (JSON)  3 how long the session is remembered (ms)
-- Reply 1 when it is noted, 0 when it was known, or is being adopted, or was adopted just now.
if redis.call('EXISTS', KEYS[3]) == 1 or redis.call('HGET', KEYS[2], ARGV[1]) then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
