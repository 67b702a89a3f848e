-- How a delivery stands after an attempt.
-- Uses clock.
--
-- KEYS  1 due  2 ended  3 events  4 failing since
-- ARGV  1 event id  2 delivery  3 in how many µs to try again ('' is never)  4 whether it was delivered (1)
--       5 how many ended ones are kept  6 and for how long (µs)  7 how long an idle queue lives (ms)
--       8… ids of the later events of the command
-- Reply for how long (µs) the endpoint has done nothing but fail, or '0'.
-- Writes all keys; forgets what ended long ago. Repeated, or settled by another node already: nothing changes.

local now = now_us()
local function failing()
  return micros(math.max(0, now - (redis.call('GET', KEYS[4]) or now)))
end

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return failing()
end
if ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[1], micros(now + ARGV[3]), ARGV[1])
else
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('ZADD', KEYS[2], micros(now), ARGV[1])
  for i = 8, #ARGV do
    if redis.call('ZSCORE', KEYS[1], ARGV[i]) then
      redis.call('ZADD', KEYS[1], micros(now), ARGV[i])
    end
  end
end
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
local surplus = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[5])
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', micros(now - ARGV[6]), 'LIMIT', 0, 100)
if surplus > #old then
  old = redis.call('ZRANGE', KEYS[2], 0, math.min(surplus, 100) - 1)
end
for _, id in ipairs(old) do
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
end
if ARGV[4] == '1' then
  redis.call('DEL', KEYS[4])
else
  redis.call('SET', KEYS[4], micros(now), 'NX')
end
for _, name in ipairs(KEYS) do
  redis.call('PEXPIRE', name, ARGV[7])
end
return failing()
