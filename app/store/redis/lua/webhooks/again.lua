-- Let an ended delivery be tried once more, now.
-- Uses clock.
--
-- KEYS  1 due  2 ended  3 events  4 failing since
-- ARGV  1 event id  2 as it stands  3 as it shall stand
-- Reply 1 when it is tried, else 0
-- Writes due, ended and events. Repeated: it waits.

if redis.call('HGET', KEYS[3], ARGV[1]) == ARGV[2] and redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[3])
  redis.call('ZADD', KEYS[1], micros(now_us()), ARGV[1])
  return 1
end
return redis.call('ZSCORE', KEYS[1], ARGV[1]) and 1 or 0
