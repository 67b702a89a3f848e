-- Write an endpoint where it still stands as it was.
--
-- KEYS  1 endpoints
-- ARGV  1 endpoint id  2 as it was ('' is none)  3 as it shall be
-- Reply 1 when it stands so, else 0
-- Writes the endpoint. Repeated: it stands so.

local known = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if known ~= ARGV[3] then
  if known ~= ARGV[2] then
    return 0
  end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return 1
