-- Take a held command to send it.
-- Uses admission, clock, eras, flight, keys, lines, match, places, record.
--
-- KEYS  1 record  2 due  3 list
-- ARGV  1 command id  2 node that claims it  3 token of the attempt
--       4 starts of servers at which it may be claimed, with a blank between ('' is any)
--       5, 6 between which instants (µs) TIME must be, then eras of the clock; where the node knows of them
-- Reply {'claimed', fields and values of the record} | {'gone'} | {'waits', what for, until (µs)} | {'busy', µs left of a quarantine, or nothing}
--       | {'stepped', µs}: the clock was set just now, and nothing is judged by it
--       | {'restarted', start}: this server may have forgotten claims of which it is told first
-- Writes record, due, topics, correlations; removes it from mqtt:held.
-- Repeated: a token that has claimed it is told so until it is sent or given back, and claims nothing after that.

local id, record = ARGV[1], KEYS[1]
local found = read(id, 'state', 'about', 'hold', 'claim', 'joined', 'not_before', 'approval')
local state, about, hold, claim, joined, not_before, approval
if found then
  state, about, hold, claim, joined, not_before, approval = unpack(found, 2, 8)
end
if state == 'pending' and claim == ARGV[3] then
  return {'claimed', redis.call('HGETALL', record)}
end
if ARGV[4] ~= '' then
  local said = redis.pcall('INFO', 'server') -- without the right to it nobody can say
  local start = not said.err and string.match(said, 'run_id:(%x+)')
  if start and not string.find(ARGV[4], start, 1, true) then
    return {'restarted', start}
  end
end
local now, match = now_us(), parse(about or nil)
local ends = string.match(hold or '', '^%d+')
if state ~= 'held' or claim == ARGV[3] or not match or not ends then
  return {'gone'}
end
if is_set_just_now(now, 5) then
  return {'stepped', micros(now)}
end
if tonumber(ends) <= judged_by(eras_from(7, now), now, tonumber(string.match(about, '^%d+'))) then
  return {'gone'}
end
if approval and not string.find(approval, ' ', 1, true) then
  return {'waits', 'approval', approval}
end
if not_before and now < tonumber(not_before) then
  return {'waits', 'time', not_before}
end
local lane = match.lane
if lane then
  local closed = closed_until(lane, now)
  if closed or ((queues(lane) or lane.order == 's') and head_of(lane) ~= id) then
    return {'waits', 'lane', micros(closed or now + LANE_LOOK_US)}
  end
end
for _, topic in ipairs(match.topics) do
  local still = topic.by_order and occupied(key('topic', topic.digest), now)
  if still then
    return {'busy', type(still) == 'number' and micros(still) or nil}
  end
  for _, value in ipairs(topic.values) do
    if names_an_open_one(key('correlation', value)) then
      return {'busy'}
    end
  end
end
begin_flight(id, now, about, match, joined, hold, ARGV[2], KEYS[2], KEYS[3])
note_sent(lane, now)
redis.call('HSET', record, 'claim', ARGV[3])
return {'claimed', redis.call('HGETALL', record)}
