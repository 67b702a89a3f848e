-- Which open commands of one partition have a given home node, soonest deadline first.
-- Uses match, record.
--
-- KEYS  1 due
-- ARGV  1 node id  2 least score, as ZRANGEBYSCORE takes it  3 how many members to look at
-- Reply {least score of the next call, or '' when this was the end; command id, command id, …}
-- Writes nothing.

local count = tonumber(ARGV[3])
local found = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, count)
local reply = {''}
for i = 1, #found, 2 do
  local record = read(found[i], 'about')
  local match = record and parse(record[2])
  if match and match.home == ARGV[1] then
    reply[#reply + 1] = found[i]
  end
end
if #found == 2 * count then
  -- The next call begins with the score that this one ended with, unless that would be the same call again.
  local first, last = found[2], found[#found]
  reply[1] = first == last and '(' .. last or last
end
return reply
