-- Have a lane of a device go on that stands since the end of a command.
-- Uses lines, stops.
--
-- KEYS  1 place of the lane
-- ARGV  1 command id of what stopped it, as whoever has it go on knows it
-- Reply '' where it did not stand, or stands since the end of another command | `<at µs> <command id>` of what stopped it, and the id that stands first in line ('' is nobody)
-- Writes: removes what stopped it.
-- Repeated: it does not stand any more.

local lane = {digest = string.match(KEYS[1], '[^:]+$')}
local stop = redis.call('GET', stop_of(lane))
if not stop or string.match(stop, ' (.*)$') ~= ARGV[1] then
  return {''}
end
redis.call('DEL', stop_of(lane))
return {stop, head_of(lane) or ''}
