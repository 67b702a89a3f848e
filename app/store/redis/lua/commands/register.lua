-- Put a command on record and make it wait for its responses, or join the one that its idempotency key stands for.
-- A key that stands for a command which was not sent is free.
-- Uses admission, clock, keys, lines, lives, match, namesakes, news, outcome, places, record, superseding, topics.
--
-- KEYS  1 record  2 due  3 list
--       then the topics, those by order first; then the correlations; then the idempotency key, if there is one
-- ARGV  1 command id          2 member of the list       3 timeout µs       4 retention ms     5 home node
--       6 rest of `about`     7 fingerprint              8 number of topics 9 how many of them are by order
--       10 number of correlations                        11 most joined nodes 12 trace ('' is none)
--       13 what is written as `v`                        14 endpoints to be told, with a blank between ('' is none)
--       15 the instant by which its caller has given up (µs; '' is not known)
--       and of what is to be held: 16 for how long (µs)  17 the caller, as the field `who` has them
--       18 most held commands of a device                19 most held commands of a partition
--       20 not before (µs; '' is any time)               21 `taken` where it is held only if its lane has no room,
--                                                         or the time (µs) within which a second person has to approve it
--       22 key of which the last one that waits stays ('' is none)                        23 error of those before it
--       24 fleet run that it belongs to ('' is none)
--       and of what goes through a lane, whose place is the last of the topics (16 to 24 are '' of what has no hold):
--       25 letter of its order      26 its width         27 most held commands of it
--       28 error of those in whose place the command comes                                29 its rest (µs)
--       30 its pace (µs)            31 `stops` if it may be stopped ('' is never)
--       32 digests of the lanes that it excludes, with a blank between
-- Reply {'registered', created µs, deadline µs, state} | {'joined', command id, fields and values of the record}
--       | {'late', µs}: nobody waits for it any more | {'full'} | {'mismatch', command id} | {'busy', µs left of a quarantine, or nothing} | {'unreadable', command id, reason}: what the key stands for
-- In a lane in which only the last one waits, those that wait are cancelled, and so are those with its key. All their
-- nodes are told, as is ours.
-- Writes record, due, list, topics, correlations (of what is held mqtt:held instead), idempotency key; for a join the record's joined nodes.
-- Of what a second person has to approve, endpoints are told by the outbox.
-- Repeated: the record is there, so its first instants are the answer and nothing is written.

local record, due, list = KEYS[1], KEYS[2], KEYS[3]
local id, home = ARGV[1], ARGV[5]
local topics, by_order, values = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local idempotency = KEYS[4 + topics + values]

local function join(known)
  local found, reason = read(known, 'about', 'joined', 'fingerprint', 'finished', 'state')
  if not found then
    return {'unreadable', known, reason}
  end
  local _, about, joined, fingerprint, finished, state = unpack(found, 1, 6)
  if not about or state == 'unsent' then
    return nil
  end
  if fingerprint ~= ARGV[7] then
    return {'mismatch', known}
  end
  local match = parse(about)
  if not match then
    return {'unreadable', known, DAMAGED}
  end
  local nodes, asked_before = 0, false
  for node in string.gmatch(waiting_nodes(match, joined), '%S+') do
    nodes = nodes + 1
    asked_before = asked_before or node == home
  end
  local there = key('callback', known)
  if not finished and not asked_before and nodes <= tonumber(ARGV[11]) then
    redis.call('HSET', there, 'joined', (joined or '') .. ' ' .. home)
  end
  return {'joined', known, redis.call('HGETALL', there)}
end

-- Whether no further command can be held for the device once those that make way are gone.
local function is_full(device, makes_way)
  local members = redis.call('ZRANGE', HELD, 0, -1)
  local own = 0
  for _, member in ipairs(members) do
    own = own + (string.match(member, ' (.*)$') == device and 1 or 0)
  end
  return own - #makes_way >= tonumber(ARGV[18]) or #members - #makes_way >= tonumber(ARGV[19])
end

-- How many wait in a lane besides those that make way.
local function waiting_in(lane, makes_way)
  local count = redis.call('ZCARD', line_of(lane))
  for _, other in ipairs(makes_way) do
    count = count - (redis.call('ZSCORE', line_of(lane), other.id) and 1 or 0)
  end
  return count
end

local known = redis.call('HMGET', record, 'about', 'state')
if known[1] then
  local created, deadline = string.match(known[1], '^(%d+) (%d+)')
  return {'registered', created, deadline, known[2]}
end
local now, latest = now_us(), tonumber(ARGV[15])
if latest and now > latest then
  return {'late', micros(now)}
end
if idempotency then
  local known = redis.call('GET', idempotency)
  local joined = known and join(known)
  if joined then
    return joined
  end
end

local held = ARGV[16] ~= '' and ARGV[16]
local within = tonumber(ARGV[21] or '')
local device = held and string.match(ARGV[2], ':(.*)$')
local name = (ARGV[22] or '') ~= '' and ARGV[22]
local makes_way = name and not within and namesakes(id, device, name) or {}
local lane = ARGV[25] and {digest = string.match(KEYS[3 + topics], '[^:]+$'), order = ARGV[25], width = tonumber(ARGV[26]),
  rest = tonumber(ARGV[29]), pace = tonumber(ARGV[30]), stops = ARGV[31] ~= '', excludes = words_of(ARGV[32])}
if lane and (not held or ARGV[21] == 'taken') then
  local taken = closed_until(lane, now) or (queues(lane) and head_of(lane))
  if taken and not held then
    return {'taken'}
  end
  held = taken and held
end
if held and (is_full(device, makes_way) or (lane and waiting_in(lane, makes_way) >= tonumber(ARGV[27]))) then
  return {'full'}
end
for i = 4, held and 3 or 3 + by_order do
  local still = occupied(KEYS[i], now)
  if still then
    return {'busy', type(still) == 'number' and micros(still) or nil}
  end
end
for i = 4 + topics, held and 3 or 3 + topics + values do
  if names_an_open_one(KEYS[i]) then
    return {'busy'}
  end
end

for _, other in ipairs(makes_way) do
  supersede(now, other.id, ARGV[23], due, list)
end
if lane and lane.order == 'l' and not within then
  for _, other in ipairs(redis.call('ZRANGE', line_of(lane), 0, -1)) do
    supersede(now, other, ARGV[28], due, list)
  end
end

local longest = tonumber(ARGV[3]) + (held or 0)
local created, deadline = micros(now), micros(now + longest)
local at_ms = later_ms(now + longest, ARGV[4])
local fields = {'state', held and 'held' or 'pending', 'about', created .. ' ' .. deadline .. ' ' .. ARGV[6], 'v', ARGV[13]}
if idempotency then
  fields[7], fields[8] = 'fingerprint', ARGV[7]
end
if ARGV[12] ~= '' then
  fields[#fields + 1] = 'trace'
  fields[#fields + 1] = ARGV[12]
end
if ARGV[14] ~= '' then
  fields[#fields + 1] = 'notify'
  fields[#fields + 1] = ARGV[14]
end
if held then
  fields[#fields + 1] = 'hold'
  fields[#fields + 1] = table.concat({micros(now + held), ARGV[3], '0'}, ' ')
  fields[#fields + 1] = 'who'
  fields[#fields + 1] = ARGV[17]
  if ARGV[20] ~= '' then
    fields[#fields + 1] = 'not_before'
    fields[#fields + 1] = ARGV[20]
  end
  if name then
    fields[#fields + 1] = 'replaces'
    fields[#fields + 1] = name
  end
  if ARGV[24] ~= '' then
    fields[#fields + 1] = 'run'
    fields[#fields + 1] = ARGV[24]
  end
  if within then
    fields[#fields + 1] = 'approval'
    fields[#fields + 1] = micros(now + within)
  end
end
redis.call('HSET', record, unpack(fields))
redis.call('PEXPIREAT', record, at_ms)
redis.call('ZADD', list, created, ARGV[2])
live_until(list, now, at_ms)
if idempotency then
  redis.call('SET', idempotency, id)
  redis.call('PEXPIREAT', idempotency, at_ms)
end
if held then
  redis.call('ZADD', HELD, micros(now + (within or held)), id .. ' ' .. device)
  live_until(HELD, now, at_ms)
  if lane and not within then
    redis.call('ZADD', line_of(lane), created, id)
    live_until(line_of(lane), now, at_ms)
  end
  if within and ARGV[14] ~= '' then
    to_outbox(now, id, 'asked', at_ms)
  end
  return {'registered', created, deadline, 'held'}
end
note_sent(lane, now)
redis.call('ZADD', due, deadline, id)
live_until(due, now, at_ms)
for i = 4, 3 + topics do
  enter_topic(KEYS[i], id, now, at_ms)
end
for i = 4 + topics, 3 + topics + values do
  redis.call('SET', KEYS[i], id)
  redis.call('PEXPIREAT', KEYS[i], at_ms)
end
return {'registered', created, deadline, 'pending'}
