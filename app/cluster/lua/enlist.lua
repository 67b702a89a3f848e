-- Keep the directory of node ids, from which nodes that left nothing behind drop out.
-- KEYS  1 directory
-- ARGV  1 node id  2 how long something of it may remain (ms)  3 '1' when the list must be there already
-- Reply 1, or 0 when the list is lost, and then nothing is changed.
-- Repeating it changes nothing but the times. A removal first, so that Redis runs the rest also at maxmemory.
-- The member '!' says that the list is there, also when no node is in it: see charter.lua.
if ARGV[3] == '1' and not redis.call('ZSCORE', KEYS[1], '!') then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local until_ms = string.format('%.0f', now + ARGV[2])
redis.call('ZADD', KEYS[1], until_ms, ARGV[1], until_ms, '!')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
