-- How long keys live.
-- Uses clock.

local function later_ms(now, ms)
  return micros(math.ceil(now / 1000) + ms)
end

-- A TTL that grows as needed and never shrinks, without the options of PEXPIRE that came with Redis 7.
local function live_until(name, now, at_ms)
  if redis.call('PTTL', name) < at_ms - math.floor(now / 1000) then
    redis.call('PEXPIREAT', name, at_ms)
  end
end
