-- Have a lane of a device go on that stands since a command failed.
--
-- KEYS  1 place of the lane
-- ARGV  none
-- Reply '' where it did not stand | `<at µs> <command id>` of what stopped it, and the id that stands first in line ('' is nobody)
-- Writes: removes what stopped it.
-- Repeated: it does not stand any more.

local lane = {digest = string.match(KEYS[1], '[^:]+$')}
local stop = redis.call('GET', stop_of(lane))
if not stop then
  return {''}
end
redis.call('DEL', stop_of(lane))
return {stop, head_of(lane) or ''}
