-- Who waits in the lane of a device.
-- Uses keys, record.
--
-- Who waits stands in mqtt:held:{p}, with all that are held in the partition, and in mqtt:held:{p}:<digest of the lane>.

local HELD = 'mqtt:held:' .. tag

local function held_member(id, match)
  return id .. ' ' .. match.device
end

-- The commands that wait in a lane, by when they were registered: beside all that are held in the partition.
local function line_of(lane)
  return key('held', lane.digest)
end

-- The command that is the next in a lane. What waits no more leaves its line (100 at most: a script stays short).
local function head_of(lane)
  local line, place = line_of(lane), lane.order == 's' and -1 or 0
  for _ = 1, 100 do
    local first = redis.call('ZRANGE', line, place, place)[1]
    local found = first and read(first, 'state')
    if not first or not found or found[2] == 'held' then
      return first
    end
    redis.call('ZREM', line, first)
  end
end
