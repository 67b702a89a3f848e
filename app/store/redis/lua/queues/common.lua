-- Put in front of the scripts that work on the window of a queue over one shard. Its twin without I/O, and what all of it
-- means, is app/core/queues/window.py: both go through the same histories in a test.
--
-- KEYS  1 the window: a hash  2 ready: place -> group, which is one byte of deliveries and 12 bytes for each reference
--       (position and key, both big-endian); places from `first` to before `last`  3 loans: number -> msgpack of deliveries, consumer, a 1 for each reference that is not
--       settled, references  4 due: l<number> and r<number> by instant  5 later: r<number> -> group  6 keys: key -> position
--       that holds it, and the positions that wait  7 consumers, by when they asked  8 dying: entries by number  9 about it: a hash
-- Numbers of loans are instants of this Redis, bumped to be unique: one that forgot its last second gives none again.

local GROUP, REFERENCE = 128, 12          -- as in app/core/queues/loans.py
local LATELY, KNOWN, CONSUMERS = 1e7, 6e7, 256
local DUE, LOOKED, SUSPECTS, DYING, LONGEST = 32, 512, 8, 10000, 4.32e10
local FIELDS = {'life', 'fed', 'serial', 'size', 'lent', 'later', 'parked', 'done', 'retried', 'dead', 'expired', 'missed',
  'delivered', 'again', 'asked', 'holder', 'held_at', 'first', 'last'}

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window = {}
for place, value in ipairs(redis.call('HMGET', KEYS[1], unpack(FIELDS))) do
  window[FIELDS[place]] = value
end
local known = {}
for _, name in ipairs(FIELDS) do
  known[name] = window[name]
  if name ~= 'life' and name ~= 'holder' then window[name] = tonumber(window[name]) or 0 end
end
window.holder = window.holder or ''

local function keep()
  local changed = {}
  for _, name in ipairs(FIELDS) do
    local value = window[name]
    if type(value) == 'number' then value = text(value) end
    if value ~= (known[name] or (name == 'holder' and '' or '0')) then
      changed[#changed + 1] = name
      changed[#changed + 1] = value
    end
  end
  if #changed > 0 then redis.call('HSET', KEYS[1], unpack(changed)) end
end

local function position(reference)
  return (struct.unpack('>I8', reference))
end

local function next_number()
  window.serial = math.max(window.serial + 1, now)
  return window.serial
end

local function append(deliveries, references)
  for start = 1, #references, GROUP do
    redis.call('HSET', KEYS[2], text(window.last),
      string.char(deliveries) .. table.concat(references, '', start, math.min(start + GROUP - 1, #references)))
    window.last = window.last + 1
  end
end

local function put_first(group)
  window.first = window.first - 1
  redis.call('HSET', KEYS[2], text(window.first), group)
end

local function pop_first()
  if window.first >= window.last then return nil end
  local place = text(window.first)
  local group = redis.call('HGET', KEYS[2], place)
  redis.call('HDEL', KEYS[2], place)
  window.first = window.first + 1
  return group
end

-- It is in the window no more; what waited behind it is free.
local function leave(reference, ordered, freed)
  window.size = window.size - 1
  if not ordered then return end
  local key = string.sub(reference, 9, 12)
  local held = redis.call('HGET', KEYS[6], key)
  if not held or string.sub(held, 1, 8) ~= string.sub(reference, 1, 8) then return end
  if #held == 8 then
    redis.call('HDEL', KEYS[6], key)
    return
  end
  redis.call('HSET', KEYS[6], key, string.sub(held, 9))
  window.parked = window.parked - 1
  freed[#freed + 1] = string.sub(held, 9, 16) .. key
end

local function bury(queue, dead, deliveries, reason, consumer, reference)
  if redis.call('ZCARD', KEYS[8]) >= DYING then return false end
  local number = math.max((tonumber(redis.call('HGET', KEYS[9], 'last')) or 0) + 1, now)
  redis.call('HSET', KEYS[9], 'last', text(number))
  redis.call('ZADD', KEYS[8], text(number), cmsgpack.pack({text(number), queue, dead, deliveries, reason, consumer, reference}))
  window.dead = window.dead + 1
  return true
end
