-- Move a source on, with what is new in it. Nothing happens where it was fed up to elsewhere, or has no room.
--
-- KEYS  1-5 as in parts/window
-- ARGV  1 up to where it was fed  2 up to where it is fed then  3 where a new one begins  4 its life  5 most references
--       6 events that are missed  7 how many groups follow, then each, then for each that is dated: instant, group
-- Reply {up to where it is fed, references in the window but for those that wait for an instant, when somebody last
--       took, how many wait for an instant}
-- Writes the window, ready, due and later. Repeated: it is fed up to there.

local DATED = 1024  -- as in app/core/queues/loans.py
local function text(number)
  return string.format('%.0f', number)
end

local found = redis.call('HMGET', KEYS[1], 'fed', 'size', 'asked', 'last', 'later', 'dated', 'serial')
local fed, size, later = found[1], tonumber(found[2]) or 0, tonumber(found[5]) or 0
local waits = math.min(later, tonumber(found[6]) or 0)
if not fed then
  fed = ARGV[3]
  redis.call('HSET', KEYS[1], 'fed', fed, 'life', ARGV[4])
end
local behind, count, dated = 7 + tonumber(ARGV[7]), 0, 0
for place = 8, behind do
  count = count + (#ARGV[place] - 1) / 12
end
for place = behind + 2, #ARGV, 2 do
  dated = dated + (#ARGV[place] - 1) / 12
end
if fed == ARGV[1] and size - waits + count <= tonumber(ARGV[5]) and waits + dated <= DATED then
  fed, size = ARGV[2], size + count + dated
  local last = tonumber(found[4]) or 0
  for place = 8, behind do
    redis.call('HSET', KEYS[2], text(last), ARGV[place])
    last = last + 1
  end
  redis.call('HSET', KEYS[1], 'fed', fed, 'size', text(size), 'last', text(last))
  if dated > 0 then
    local time, serial = redis.call('TIME'), tonumber(found[7]) or 0
    local now = time[1] * 1000000 + time[2]
    for place = behind + 1, #ARGV, 2 do
      serial = math.max(serial + 1, now)
      redis.call('HSET', KEYS[5], 'r' .. text(serial), ARGV[place + 1])
      redis.call('ZADD', KEYS[4], ARGV[place], 'r' .. text(serial))
    end
    waits = waits + dated
    redis.call('HSET', KEYS[1], 'serial', text(serial), 'later', text(later + dated), 'dated', text(waits))
  end
  if ARGV[6] ~= '0' then
    local counted = redis.call('HMGET', KEYS[1], 'expired', 'missed')
    redis.call('HSET', KEYS[1], 'expired', text((tonumber(counted[1]) or 0) + ARGV[6]),
      'missed', text((tonumber(counted[2]) or 0) + ARGV[6]))
  end
end
return {fed, text(size - waits), found[3] or '0', text(waits)}
