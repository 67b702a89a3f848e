-- Time out what is overdue in one partition, and take out of its indexes what has no record any more.
--
-- KEYS  1 due  2 list
-- ARGV  1 grace µs  2 finishing node  3 error  4 most commands to end
-- Reply {command id, finished µs, home heard, command id, finished µs, home heard, …}
-- Writes as finish.lua does for each of them; removes members of due and list.
-- Repeated: what was ended is due no more.
-- Bounded: ARGV[4] commands, and 110 members of the list.

local ROUND = 20

local now = now_us()
local reply = {}
local due = redis.call(
  'ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. micros(now - ARGV[1]), 'LIMIT', 0, ARGV[4])
for _, id in ipairs(due) do
  local joined, about, finished =
    unpack(redis.call('HMGET', key('callback', id), 'joined', 'about', 'finished'))
  if about and not finished then
    local outcome = {state = 'timed_out', finished = micros(now), by = '', result = '', error = ARGV[3]}
    local match = parse(about)
    local heard = settle(now, id, waiting_nodes(match, joined), match, KEYS[1], KEYS[2], outcome, ARGV[2])
    reply[#reply + 1] = id
    reply[#reply + 1] = outcome.finished
    reply[#reply + 1] = heard
  else
    redis.call('ZREM', KEYS[1], id)
  end
end

-- How many of `count` members from `first` on had no record and are gone now.
local function tidy(first, count)
  local gone = {}
  for _, member in ipairs(redis.call('ZRANGE', KEYS[2], first, first + count - 1)) do
    if redis.call('EXISTS', key('callback', string.match(member, '^[^:]+'))) == 0 then
      gone[#gone + 1] = member
    end
  end
  if #gone > 0 then
    redis.call('ZREM', KEYS[2], unpack(gone))
  end
  return #gone
end

-- The oldest go first as a rule, but a short-lived one may be behind a long-lived one: look at some place, too.
for _ = 1, 5 do
  if tidy(0, ROUND) < ROUND then
    break
  end
end
local size = redis.call('ZCARD', KEYS[2])
if size > ROUND then
  tidy(now % size, ROUND / 2)
end
return reply
