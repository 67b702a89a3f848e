-- Look who is in a lane of a device.
--
-- KEYS  1 place of the lane
-- ARGV  1 rest of the lane (µs)
-- Reply how many have a place, and the ids of those that wait, first come first
-- Writes nothing but what others do when they look: what has no record any more leaves the lane.

local lane = {digest = string.match(KEYS[1], '[^:]+$'), rest = tonumber(ARGV[1])}
local reply = {(taken_places(lane, now_us()))}
for _, id in ipairs(redis.call('ZRANGE', line_of(lane), 0, -1)) do
  local found = read(id, 'state')
  if not found or found[2] == 'held' then
    reply[#reply + 1] = id
  end
end
return reply
