-- What is on the way to become dead letters: always the same ones, until they are taken off.
--
-- KEYS  1 dying: entries by number  2 about it: a hash
-- ARGV  1 most  2 take those off up to this number, or ''
-- Reply the entries
-- Writes both keys. Repeated: the same, or what is off is off.

if ARGV[2] ~= '' then
  if redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2]) > 0 then  -- else a node is late, and others are being buried
    redis.call('HDEL', KEYS[2], 'sealed')
  end
  return {}
end
local sealed = tonumber(redis.call('HGET', KEYS[2], 'sealed'))
local entries = {}
for place, entry in ipairs(redis.call('ZRANGE', KEYS[1], 0, (sealed or tonumber(ARGV[1])) - 1)) do
  entries[place] = cmsgpack.unpack(entry)
end
if not sealed and #entries > 0 then redis.call('HSET', KEYS[2], 'sealed', #entries) end
return entries
