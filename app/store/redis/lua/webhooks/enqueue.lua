-- Let an event wait for its first attempt.
-- Uses clock.
--
-- KEYS  1 due  2 ended  3 events  4 failing since
-- ARGV  1 event id  2 delivery  3 most that may wait  4 how long an idle queue lives (ms)
-- Reply 1, or 0 when the queue is full
-- Writes due and events. Repeated: the event is known, also when it has been delivered.

if redis.call('HGET', KEYS[3], ARGV[1]) then
  return 1
end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', KEYS[1], micros(now_us()), ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
for _, name in ipairs(KEYS) do
  redis.call('PEXPIRE', name, ARGV[4])
end
return 1
