-- Forget a session that was adopted: the broker has it no more.
-- KEYS  1 lease  2 sessions of the node id  3 the adoption of this session
-- ARGV  1 MQTT client id of the session  2 how long it is known that it was adopted (ms)
-- Reply 1 when nothing of the node id remains, else 0. Repeating it changes nothing.
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('SET', KEYS[3], 'adopted', 'PX', ARGV[2])
return redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 and 1 or 0
