-- Give up a lease, if it is still ours, and forget the session unless it is left for others to adopt.
-- KEYS  1 lease  2 sessions of the node id
-- ARGV  1 the incarnation (JSON)  2 its MQTT client id  3 '1' when the broker keeps the session
-- Reply 1 when nothing of the node id remains, else 0. Repeating it changes nothing.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
if ARGV[3] ~= '1' then redis.call('HDEL', KEYS[2], ARGV[2]) end
return redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 and 1 or 0
