-- What is due, for one node until it is settled, or the hold is over.
--
-- KEYS  1 due  2 ended  3 events  4 failing since
-- ARGV  1 most  2 hold µs  3, 4 how ids of the later and of the earlier event of a command end
-- Reply the deliveries
-- Writes when they are due again. Not to be repeated: that would claim the next ones; those before come back when the
-- hold is over.
-- Bounded: looks at four times ARGV[1].

local most, now = tonumber(ARGV[1]), now_us()
local claimed = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', micros(now), 'LIMIT', 0, 4 * most)) do
  if #claimed == most then
    break
  end
  local earlier = string.sub(id, -#ARGV[3]) == ARGV[3]
    and redis.call('ZSCORE', KEYS[1], string.sub(id, 1, -1 - #ARGV[3]) .. ARGV[4])
  local delivery = redis.call('HGET', KEYS[3], id)
  if not delivery then
    redis.call('ZREM', KEYS[1], id)
  elseif earlier then
    redis.call('ZADD', KEYS[1], micros(math.max(now, tonumber(earlier)) + 1), id) -- out of the way of others
  else
    redis.call('ZADD', KEYS[1], micros(now + ARGV[2]), id)
    claimed[#claimed + 1] = delivery
  end
end
return claimed
