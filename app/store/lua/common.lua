-- Put in front of every script when it is loaded: the few things that all of them do.
--
-- The record `mqtt:callback:{p}:<command id>` is a hash:
--   state         as in app/core/command.py
--   about         "<created µs> <deadline µs> <retention ms> <quarantine µs> <idempotency digest or -> <expectations>
--                 <home node> <device>" NUL method NUL profile NUL params. Expectations, with a comma between, are
--                 <topic digest>.<kind>.<kind>…; a kind is i (by id), o (by order) or v<value digest>; - is none
--   joined        further waiting nodes, with a blank before each
--   fingerprint   of the body, where there is an idempotency key
--   finished, by, result, error   the outcome: instant in µs, receiving node (app/core/reception.py), JSON texts; a
--                 record is open without it
--   quarantine    until when (µs) its topic by order stays occupied after the outcome
--   progress, late                JSON texts
--   trace         the context of its trace (W3C traceparent), where it is traced
-- All keys derive from the partition, so one call touches one slot. The only clock is Redis TIME.

local INLINE_MAX = 4096 -- as in app/core/wakeup.py

local tag = string.match(KEYS[1], '{%d+}')

local function key(kind, name)
  return 'mqtt:' .. kind .. ':' .. tag .. ':' .. name
end

local function micros(number)
  return string.format('%.0f', number)
end

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function later_ms(now, ms)
  return micros(math.ceil(now / 1000) + ms)
end

-- A TTL that grows as needed and never shrinks, without the options of PEXPIRE that came with Redis 7.
local function live_until(name, now, at_ms)
  if redis.call('PTTL', name) < at_ms - math.floor(now / 1000) then
    redis.call('PEXPIREAT', name, at_ms)
  end
end

-- What a response is matched by, and what has to be cleaned up.
local function parse(about)
  local retention, quarantine, idempotency, expectations, home, device =
    string.match(about, '^%d+ %d+ (%d+) (%d+) (%S+) (%S+) (%S+) (%Z+)')
  local topics = {}
  for entry in string.gmatch(expectations == '-' and '' or expectations, '[^,]+') do
    local topic = {values = {}}
    for part in string.gmatch(entry, '[^.]+') do
      if not topic.digest then
        topic.digest = part
      elseif part == 'o' then
        topic.by_order = true
      elseif part ~= 'i' then
        topic.values[#topic.values + 1] = string.sub(part, 2)
      end
    end
    topics[#topics + 1] = topic
  end
  return {
    retention = tonumber(retention), quarantine = tonumber(quarantine), idempotency = idempotency,
    topics = topics, home = home, device = device,
  }
end

-- Whether the command still keeps others from its topic: open, or in quarantine.
local function occupies(id, now)
  local state, finished, quarantine =
    unpack(redis.call('HMGET', key('callback', id), 'state', 'finished', 'quarantine'))
  return state and (not finished or (quarantine and tonumber(quarantine) > now))
end

local function keep_while_mine(name, id, at_ms)
  if redis.call('GET', name) == id then
    redis.call('PEXPIREAT', name, at_ms)
  end
end

local function waiting_nodes(match, joined)
  return match.home .. (joined or '')
end

-- Returns '1' when the home node, which comes first, was there to hear it, else '0'.
local function wake(id, waiting, outcome, settler)
  -- The trace comes last, and only where there is one.
  local body = table.concat(
    {id, outcome.state, outcome.finished, outcome.by, outcome.result, outcome.error, outcome.trace}, '\0')
  if #body > INLINE_MAX then
    body = id
  end
  local home, heard = string.match(waiting, '%S+'), '0'
  for node in string.gmatch(waiting, '%S+') do
    if node ~= settler and redis.call('PUBLISH', 'mqtt:node:' .. node, body) > 0 and node == home then
      heard = '1'
    end
  end
  return heard
end

-- Give an open command its outcome. The first write removes, so that Redis runs the rest also at maxmemory (F31).
-- Returns what `wake` does.
local function settle(now, id, waiting, match, due, list, outcome, settler)
  redis.call('ZREM', due, id)
  local record = key('callback', id)
  local at_ms = later_ms(now, match.retention)
  local stays = match.quarantine > 0 and (outcome.state == 'timed_out' or outcome.state == 'cancelled')
  for _, topic in ipairs(match.topics) do
    if stays and topic.by_order then
      live_until(key('topic', topic.digest), now, at_ms)
      redis.call('HSET', record, 'quarantine', micros(now + match.quarantine))
    else
      redis.call('ZREM', key('topic', topic.digest), id)
    end
    for _, value in ipairs(topic.values) do
      keep_while_mine(key('correlation', value), id, at_ms)
    end
  end
  local fields = {'state', outcome.state, 'finished', outcome.finished}
  for _, name in ipairs({'by', 'result', 'error'}) do
    if outcome[name] ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = outcome[name]
    end
  end
  redis.call('HSET', record, unpack(fields))
  redis.call('PEXPIREAT', record, at_ms)
  live_until(list, now, at_ms)
  if match.idempotency ~= '-' then
    keep_while_mine(key('idempotency', match.idempotency), id, at_ms)
  end
  return wake(id, waiting, outcome, settler)
end
