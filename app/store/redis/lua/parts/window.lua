-- The window of a queue over one shard. Its twin without I/O, and what all of it means, is app/core/queues/window.py: both
-- go through the same histories in a test.
--
-- KEYS  1 the window: a hash  2 ready: place -> group, which is one byte of deliveries and 12 bytes for each reference
--       (position and key, both big-endian); places from `first` to before `last`  3 loans: number -> msgpack of deliveries, consumer, a 1 for each reference that is not
--       settled, references  4 due: l<number> and r<number> by instant  5 later: r<number> -> group  6 keys: key -> position
--       that holds it, and the positions that wait  7 consumers, by when they asked  8 dying: entries by number  9 about it: a hash
-- Numbers of loans are instants of this Redis, bumped to be unique: one that forgot its last second gives none again.

local GROUP, REFERENCE = 128, 12          -- as in app/core/queues/loans.py
local LATELY, KNOWN, NOTED, CONSUMERS = 1e7, 6e7, 1e6, 256
local DUE, LOOKED, SUSPECTS, DYING, LONGEST = 32, 512, 8, 10000, 4.32e10
local FIELDS = {'life', 'fed', 'serial', 'size', 'lent', 'later', 'dated', 'parked', 'done', 'retried', 'dead', 'expired', 'missed',
  'delivered', 'again', 'asked', 'holder', 'held_at', 'first', 'last'}

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window, found = {}, {}
for place, value in ipairs(redis.call('HMGET', KEYS[1], unpack(FIELDS))) do
  local name = FIELDS[place]
  if name == 'holder' then
    value = value or ''
  elseif name ~= 'life' then
    value = tonumber(value) or 0
  end
  window[name], found[name] = value, value
end

window.dated = math.min(window.dated, window.later)  -- 0.2.0 brings them back, and does not count them

-- Key -> position that holds it and the positions that wait, '' for none: read for many references at once, and written
-- when the script ends.
local held, touched = {}, {}

local function learn(references)
  local keys = {}
  for _, reference in ipairs(references) do
    local key = string.sub(reference, 9, 12)
    if not held[key] then
      held[key] = ''
      keys[#keys + 1] = key
    end
  end
  if #keys == 0 then return end
  for place, positions in ipairs(redis.call('HMGET', KEYS[6], unpack(keys))) do
    held[keys[place]] = positions or ''
  end
end

local function hold(key, positions)
  held[key], touched[key] = positions, true
end

local function keep_held()
  local set, gone = {}, {}
  for key in pairs(touched) do
    if held[key] == '' then
      gone[#gone + 1] = key
    else
      set[#set + 1] = key
      set[#set + 1] = held[key]
    end
  end
  for start = 1, #set, 2 * GROUP do
    redis.call('HSET', KEYS[6], unpack(set, start, math.min(start + 2 * GROUP - 1, #set)))
  end
  for start = 1, #gone, GROUP do
    redis.call('HDEL', KEYS[6], unpack(gone, start, math.min(start + GROUP - 1, #gone)))
  end
end

local function keep()
  local changed = {}
  for _, name in ipairs(FIELDS) do
    local value = window[name]
    if value ~= found[name] then
      changed[#changed + 1] = name
      changed[#changed + 1] = type(value) == 'number' and text(value) or value
    end
  end
  if #changed > 0 then redis.call('HSET', KEYS[1], unpack(changed)) end
  keep_held()
end

local function position(reference)
  return (struct.unpack('>I8', reference))
end

local function next_number()
  window.serial = math.max(window.serial + 1, now)
  return window.serial
end

local function split(references)
  local each = {}
  for at = 1, #references, REFERENCE do
    each[#each + 1] = string.sub(references, at, at + REFERENCE - 1)
  end
  return each
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

-- These are in the window no more; what waited behind them is free.
local function leave(references, ordered, freed)
  window.size = window.size - #references
  if not ordered then return end
  learn(references)
  for _, reference in ipairs(references) do
    local key = string.sub(reference, 9, 12)
    local positions = held[key]
    if string.sub(positions, 1, 8) == string.sub(reference, 1, 8) then
      hold(key, string.sub(positions, 9))
      if #positions > 8 then
        window.parked = window.parked - 1
        freed[#freed + 1] = string.sub(positions, 9, 16) .. key
      end
    end
  end
end

local function bury(queue, dead, deliveries, reason, consumer, reference)
  if redis.call('ZCARD', KEYS[8]) >= DYING then return false end
  local number = math.max((tonumber(redis.call('HGET', KEYS[9], 'last')) or 0) + 1, now)
  redis.call('HSET', KEYS[9], 'last', text(number))
  redis.call('ZADD', KEYS[8], text(number), cmsgpack.pack({text(number), queue, dead, deliveries, reason, consumer, reference}))
  window.dead = window.dead + 1
  return true
end
