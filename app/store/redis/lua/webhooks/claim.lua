-- What is due, for one node until it is settled, or the hold is over.
-- Uses clock.
--
-- KEYS  1 due  2 ended  3 events  4 failing since
-- ARGV  1 most  2 hold µs  3 how the id of the first event of a command ends  4… how those of its later ones end
-- Reply the deliveries
-- Writes when they are due again. Not to be repeated: that would claim the next ones; those before come back when the
-- hold is over.
-- Bounded: looks at four times ARGV[1].

local most, now = tonumber(ARGV[1]), now_us()
local claimed = {}

-- When the first event of the command is due, where this is a later one and that one waits.
local function earlier_than(id)
  for i = 4, #ARGV do
    if string.sub(id, -#ARGV[i]) == ARGV[i] then
      return redis.call('ZSCORE', KEYS[1], string.sub(id, 1, -1 - #ARGV[i]) .. ARGV[3])
    end
  end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', micros(now), 'LIMIT', 0, 4 * most)) do
  if #claimed == most then
    break
  end
  local earlier = earlier_than(id)
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
