-- Have what happens to the commands of a partition be kept from now on: it is, for as long as its stream is there.
--
-- KEYS  1 happenings
-- ARGV  1 for how long, in ms
--       2 the first millisecond that entries may bear; a stream that has older ones, too, begins anew there
-- Reply the oldest entry: nothing that happened since then is missing
-- Writes an entry without content where a stream begins, and when it ends.
-- Repeated: it ends later.

local function oldest()
  return redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
end

local time = redis.call('TIME')
local ahead = time[1] * 1000 + math.floor(time[2] / 1000) < tonumber(ARGV[2])
local first = oldest()
if first and ahead and tonumber(string.match(first[1], '^%d+')) < tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[1])
  first = nil
end
if not first then
  redis.call('XADD', KEYS[1], ahead and ARGV[2] .. '-0' or '*', 'opened', '')
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return first or oldest()
