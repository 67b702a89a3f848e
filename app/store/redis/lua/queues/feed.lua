-- Move a source on, with what is new in it. Nothing happens where it was fed up to elsewhere, or has no room.
--
-- KEYS  1 the window  2 ready
-- ARGV  1 up to where it was fed  2 up to where it is fed then  3 where a new one begins  4 its life  5 most references
--       6 events that are missed  7... groups
-- Reply {up to where it is fed, references in the window, when somebody last took}
-- Writes the window and ready. Repeated: it is fed up to there.

local found = redis.call('HMGET', KEYS[1], 'fed', 'size', 'asked', 'last')
local fed, size = found[1], tonumber(found[2]) or 0
if not fed then
  fed = ARGV[3]
  redis.call('HSET', KEYS[1], 'fed', fed, 'life', ARGV[4])
end
local count = 0
for place = 7, #ARGV do
  count = count + (#ARGV[place] - 1) / 12
end
if fed == ARGV[1] and size + count <= tonumber(ARGV[5]) then
  fed, size = ARGV[2], size + count
  local last = tonumber(found[4]) or 0
  for place = 7, #ARGV do
    redis.call('HSET', KEYS[2], string.format('%.0f', last), ARGV[place])
    last = last + 1
  end
  redis.call('HSET', KEYS[1], 'fed', fed, 'size', string.format('%.0f', size), 'last', string.format('%.0f', last))
  if ARGV[6] ~= '0' then
    local counted = redis.call('HMGET', KEYS[1], 'expired', 'missed')
    redis.call('HSET', KEYS[1], 'expired', string.format('%.0f', (tonumber(counted[1]) or 0) + ARGV[6]),
      'missed', string.format('%.0f', (tonumber(counted[2]) or 0) + ARGV[6]))
  end
end
return {fed, size, found[3] or '0'}
