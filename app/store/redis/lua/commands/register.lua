-- Put a command on record and make it wait for its responses, or join the one that its idempotency key stands for.
-- A key that stands for a command which was not sent is free.
--
-- KEYS  1 record  2 due  3 list
--       then the topics, those by order first; then the correlations; then the idempotency key, if there is one
-- ARGV  1 command id          2 member of the list       3 timeout µs       4 retention ms     5 home node
--       6 rest of `about`     7 fingerprint              8 number of topics 9 how many of them are by order
--       10 number of correlations                        11 most joined nodes 12 trace ('' is none)
--       13 what is written as `v`                        14 endpoints to be told, with a blank between ('' is none)
-- Reply {'registered', created µs, deadline µs} | {'joined', command id, fields and values of the record}
--       | {'mismatch', command id} | {'busy', µs left of a quarantine, or nothing} | {'unreadable', command id, reason}: what the key stands for
-- Writes record, due, list, topics, correlations, idempotency key; for a join the record's joined nodes.
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

-- Those whose record is gone, or whose quarantine is over, are in nobody's way. (100 at most: a script stays short.)
local function occupied(topic, now)
  for _ = 1, 100 do
    local oldest = redis.call('ZRANGE', topic, 0, 0)[1]
    if not oldest then
      return false
    end
    local still = occupies(oldest, now)
    if still then
      return still
    end
    redis.call('ZREM', topic, oldest)
  end
  return true
end

local about = redis.call('HGET', record, 'about')
if about then
  return {'registered', string.match(about, '^(%d+) (%d+)')}
end
if idempotency then
  local known = redis.call('GET', idempotency)
  local joined = known and join(known)
  if joined then
    return joined
  end
end

local now = now_us()
for i = 4, 3 + by_order do
  local still = occupied(KEYS[i], now)
  if still then
    return {'busy', type(still) == 'number' and micros(still) or nil}
  end
end
for i = 4 + topics, 3 + topics + values do
  local holder = redis.call('GET', KEYS[i])
  if holder then
    local found = read(holder, 'state', 'finished')
    if not found or found[2] and not found[3] then
      return {'busy'}
    end
  end
end

local created, deadline = micros(now), micros(now + ARGV[3])
local at_ms = later_ms(now + ARGV[3], ARGV[4])
local fields = {'state', 'pending', 'about', created .. ' ' .. deadline .. ' ' .. ARGV[6], 'v', ARGV[13]}
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
redis.call('HSET', record, unpack(fields))
redis.call('PEXPIREAT', record, at_ms)
redis.call('ZADD', due, deadline, id)
live_until(due, now, at_ms)
redis.call('ZADD', list, created, ARGV[2])
live_until(list, now, at_ms)
for i = 4, 3 + topics do
  -- What outlived its record leaves a busy topic one by one, oldest first.
  local oldest = redis.call('ZRANGE', KEYS[i], 0, 0)[1]
  if oldest and not occupies(oldest, now) then
    redis.call('ZREM', KEYS[i], oldest)
  end
  redis.call('ZADD', KEYS[i], created, id)
  live_until(KEYS[i], now, at_ms)
end
for i = 4 + topics, #KEYS do
  redis.call('SET', KEYS[i], id)
  redis.call('PEXPIREAT', KEYS[i], at_ms)
end
return {'registered', created, deadline}
