-- Put in front of every script when it is loaded: the few things that all of them do.
--
-- The record `mqtt:callback:{p}:<command id>` is a hash:
--   state         as in app/core/command.py
--   waiting       node ids with a blank between, the home node first
--   about         "<created µs> <deadline µs>" NUL device NUL method NUL profile NUL params: never read here but for
--                 its two instants
--   match         "<retention ms> <quarantine µs> <idempotency digest or -> <expectations or -> <device id>"; an
--                 expectation is <topic digest><i|v|o><value digest>, with a comma between
--   fingerprint   of the body, where there is an idempotency key
--   finished, by, result, error   the outcome: instant in µs, receiving node, JSON texts; a record is open without it
--   quarantine    until when (µs) its topic by order stays occupied after the outcome
--   progress, late                JSON texts
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

local function parse(match)
  local retention, quarantine, idempotency, expectations, device =
    string.match(match, '^(%d+) (%d+) (%S+) (%S+) (.*)$')
  return {
    retention = tonumber(retention), quarantine = tonumber(quarantine), idempotency = idempotency,
    expectations = expectations, device = device,
  }
end

local function each_expectation(match)
  return string.gmatch(match.expectations, '(%x+)([ivo])(%x*)')
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

local function wake(id, waiting, outcome, settler)
  local body = table.concat(
    {id, outcome.state, outcome.finished, outcome.by, outcome.result, outcome.error}, '\0')
  if #body > INLINE_MAX then
    body = id
  end
  for node in string.gmatch(waiting, '%S+') do
    if node ~= settler then
      redis.call('PUBLISH', 'mqtt:node:' .. node, body)
    end
  end
end

-- Give an open command its outcome. The first write removes, so that Redis runs the rest also at maxmemory (F31).
local function settle(now, id, waiting, match, due, list, outcome, settler)
  redis.call('ZREM', due, id)
  local record = key('callback', id)
  local at_ms = later_ms(now, match.retention)
  local stays = match.quarantine > 0 and (outcome.state == 'timed_out' or outcome.state == 'cancelled')
  for topic, kind, value in each_expectation(match) do
    if stays and kind == 'o' then
      live_until(key('topic', topic), now, at_ms)
      redis.call('HSET', record, 'quarantine', micros(now + match.quarantine))
    else
      redis.call('ZREM', key('topic', topic), id)
    end
    if kind == 'v' then
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
  wake(id, waiting, outcome, settler)
end
