-- Time out what is overdue in one partition, and take out of its indexes what has no record any more.
-- Uses clock, eras, keys, lines, match, outcome, record.
--
-- KEYS  1 due  2 list
-- ARGV  1 grace µs  2 finishing node  3 error  4 most commands to end
--       5 error of what was held to the end               6 error of what nobody has approved in time
--       7, 8 between which instants (µs) TIME must be: else nothing is done; then eras of the clock
-- Reply {command id, finished µs, home heard, …}, with `held ` in front of the last where it was held to the end, or `unapproved `; {command id, '', reason, …} of what cannot be read
-- Writes as finish.lua does for each of them; removes members of due and list; puts off what cannot be read.
-- Repeated: what was ended is due no more.
-- Bounded: looks at twice ARGV[4] commands, and at 110 members of the list.

local ROUND = 20
local PUT_OFF_US = 10e6

local now = now_us()
if is_set_just_now(now, 7) then
  return {}
end
local most = tonumber(ARGV[4])
local eras, latest = eras_from(9, now), now
for _, era in ipairs(eras) do
  latest = math.max(latest, era.by)
end

local reply = {}
local function say(id, finished, what)
  reply[#reply + 1] = id
  reply[#reply + 1] = finished
  reply[#reply + 1] = what
end

-- What cannot be read must not keep us from what is behind it. (At maxmemory it stays where it is.)
local function put_off(id, reason)
  redis.pcall('ZADD', KEYS[1], 'XX', micros(now + PUT_OFF_US), id)
  say(id, '', reason)
end

local ended = 0
local function end_overdue(id)
  local found, reason = read(id, 'joined', 'about', 'finished', 'state', 'notify', 'hold')
  if not found then
    return put_off(id, reason)
  end
  local v, joined, about, finished, state, notify, hold = unpack(found, 1, 7)
  if not state or finished then
    return redis.call('ZREM', KEYS[1], id)
  end
  local match = parse(about)
  if not match then
    return put_off(id, DAMAGED)
  end
  if #eras > 1 then
    local began, deadline = string.match(about, '^(%d+) (%d+)')
    local timeout = string.match(hold or '', '^%d+ (%d+)')
    if timeout then -- its time began with its claim
      began = deadline - timeout
    end
    if tonumber(deadline) >= judged_by(eras, now, tonumber(began)) - ARGV[1] then
      return
    end
  end
  local outcome = {
    state = 'timed_out', finished = micros(now), by = '', result = '', error = ARGV[3], words = words(v), was = state,
    notify = notify,
  }
  say(id, outcome.finished,
    settle(now, id, waiting_nodes(match, joined), match, KEYS[1], KEYS[2], outcome, ARGV[2]))
  ended = ended + 1
end

local function look(first, count)
  local due = redis.call(
    'ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. micros(latest - ARGV[1]), 'LIMIT', first, count)
  for _, id in ipairs(due) do
    end_overdue(id)
  end
  return #due
end

local looked = look(0, most)
if looked == most and ended < most then
  -- The first ones wait for the clock: look at some place behind them, too.
  local kept = looked - ended
  look(kept + now % math.max(1, redis.call('ZCARD', KEYS[1]) - kept), most - ended)
end

-- End what was held to the end of its hold, or of the time for its approval.
local function lapse(member)
  local id = string.match(member, '^%S+')
  local found = read(id, 'joined', 'about', 'finished', 'state', 'notify', 'hold', 'approval')
  local match = found and parse(found[3])
  if not match then
    return found and redis.call('ZREM', HELD, member) -- what cannot be read is another node's to end
  end
  local v, joined, about, _, state, notify, hold, approval = unpack(found, 1, 8)
  if state ~= 'held' then
    return redis.call('ZREM', HELD, member)
  end
  local unapproved = string.match(approval or '', '^%d+$')
  local created, ends = string.match(about, '^(%d+)'), unapproved or string.match(hold or '', '^(%d+)')
  if tonumber(ends) >= judged_by(eras, now, tonumber(created)) - ARGV[1] then
    return
  end
  local outcome = {
    state = 'unsent', finished = micros(now), by = '', result = '', error = unapproved and ARGV[6] or ARGV[5], words = words(v), was = state,
    notify = notify,
  }
  local heard = settle(now, id, waiting_nodes(match, joined), match, KEYS[1], KEYS[2], outcome, ARGV[2])
  say(id, outcome.finished, (unapproved and 'unapproved ' or 'held ') .. heard)
end

-- A user of Redis that lacks the right to this key, as before 0.3.0, holds nothing.
for _, member in ipairs(
  redis.pcall('ZRANGEBYSCORE', HELD, '-inf', '(' .. micros(latest - ARGV[1]), 'LIMIT', 0, most)) do
  lapse(member)
end

-- How many of `count` members from `first` on had no record and are gone now.
local function tidy(first, count)
  local gone = {}
  for _, member in ipairs(redis.call('ZRANGE', KEYS[2], first, first + count - 1)) do
    local id = string.match(member, '^[^:]+')
    if id and redis.call('EXISTS', key('callback', id)) == 0 then
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
