-- Look who is in a lane of a device.
-- Uses clock, lines, places, record, stops.
--
-- KEYS  1 place of the lane
-- ARGV  1 rest of the lane (µs)  2 its pace (µs)  3 `stops` if it may be stopped ('' is never)
--       4 digests of the lanes that it excludes, with a blank between
-- Reply how many have a place, until when it is kept back besides (µs; 0 is not), `<at µs> <command id>` of what stopped
--       it ('' is nothing), and the ids of those that wait, first come first
-- Writes nothing but what others do when they look: what has no record any more leaves the lane.

local lane = {digest = string.match(KEYS[1], '[^:]+$'), rest = tonumber(ARGV[1]), pace = tonumber(ARGV[2]),
  excludes = words_of(ARGV[4])}
local now = now_us()
local reply = {(taken_places(lane, now)), micros(kept_back(lane, now) or 0), ARGV[3] ~= '' and redis.call('GET', stop_of(lane)) or ''}
for _, id in ipairs(redis.call('ZRANGE', line_of(lane), 0, -1)) do
  local found = read(id, 'state')
  if not found or found[2] == 'held' then
    reply[#reply + 1] = id
  end
end
return reply
