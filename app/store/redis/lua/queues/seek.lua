-- Begin a window anew elsewhere, or let it read its dead letters up to an instant: no earlier one than was said before.
--
-- KEYS  1 the window  2-6 all that is in it  7 the last calls of nodes: not here, as a life ends what they were lent
-- ARGV  1 its next life  2 up to where it was fed then, or ''  3 up to where it reads dead letters, or ''
-- Reply 1
-- Writes all keys. Repeated: it has another life, and is empty again.

if ARGV[2] ~= '' then
  redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
  redis.call('HDEL', KEYS[1], 'size', 'lent', 'later', 'dated', 'parked', 'holder', 'held_at', 'first', 'last')
  redis.call('HSET', KEYS[1], 'life', ARGV[1], 'fed', ARGV[2])
  return 1
end
local found = redis.call('HMGET', KEYS[1], 'fed', 'until')
if tonumber(found[2] or '0') < tonumber(ARGV[3]) then redis.call('HSET', KEYS[1], 'until', ARGV[3]) end
if not found[1] then redis.call('HSET', KEYS[1], 'fed', '0', 'life', ARGV[1]) end
return 1
