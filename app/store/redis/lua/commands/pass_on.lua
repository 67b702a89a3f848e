-- Free the place of a command in a lane that waits for no more than that the broker has it.
-- Uses keys, match, record, stops.
--
-- KEYS  1 record
-- ARGV  1 command id  2 the state that says so  3 states that it may follow, with a blank around each
-- Reply who stands first in the lane, `<command id> <device>`, or '' where nobody does
-- Writes the record's state; removes its id from the place of its lane.
-- Repeated: it is not there any more, and the reply is as things are.

local id, record = ARGV[1], KEYS[1]
local found = read(id, 'state', 'about')
local state = found and found[2]
local match = state and state ~= 'held' and parse(found[3])
local lane = match and match.lane
if not lane or lane.order ~= 'a' then
  return ''
end
redis.call('ZREM', key('topic', lane.digest), id) -- a removal first: also at maxmemory
if string.find(ARGV[3], ' ' .. state .. ' ', 1, true) then
  redis.call('HSET', record, 'state', ARGV[2])
end
local follower = next_of(lane)
return follower and follower .. ' ' .. match.device or ''
