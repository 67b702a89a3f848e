-- Put in front of every script when it is loaded, with lanes.lua and outcomes.lua behind it: the few things that all do.
--
-- The record `mqtt:callback:{p}:<command id>` is a hash:
--   state         as in app/core/commands/command.py
--   about         "<created µs> <deadline µs> <retention ms> <quarantine µs> <idempotency digest or -> <expectations>
--                 <home node> <device>" NUL method NUL profile NUL params. Expectations, with a comma between, are
--                 <topic digest>.<kind>.<kind>…; a kind is i (by id), o (by order), e (by echo) or v<value digest>; - is none.
--                 A lane is among them as <digest>.l<letter of its order><width>:<rest ms>:<name>: its place is taken, and freed,
--                 as a topic. A letter is p (parallel), f (fifo), a (fifo_ack), s (lifo) or l (latest). Behind it may stand
--                 .p<µs between two sends>, .s (it stops), .x<name>:<digest> of each lane that it excludes, and .y<…> of each that excludes it
--   joined        further waiting nodes, with a blank before each
--   watch         nodes that are told of progress as well, with a blank before each; they are waiting nodes, too
--   seq           how many reports of progress there were; app/core/commands/history.py
--   fingerprint   of the body, where there is an idempotency key
--   finished, by, result, error   the outcome: instant in µs, receiving node (app/core/commands/reception.py), JSON texts; a
--                 record is open without it
--   quarantine    until when (µs) its topic by order stays occupied after the outcome
--   rests         until when (µs) its place in a lane stays taken after the outcome
--   progress, late, verified      JSON texts
--   hold          "<until µs> <timeout µs> <claims>", and when a claim was given back (µs), of a command that waits, or waited, to be sent. While it is `held`
--                 its deadline is the latest one that is possible, and no index but mqtt:held leads to it
--   claim         token of the last claim; one claims once
--   not_before    instant (µs) before which a held command is not claimed, where it has one
--   approval      "<until µs>" of what a second person has to approve, and behind it once that is decided
--                 " <decided at µs> <decision>", as app/core/commands/approval.py writes it. Until then it stands in no line of a
--                 lane, and its score in mqtt:held is when that time is over
--   who           the caller whose right is judged at each claim
--   sender        the node that took over sending it, as its home had died
--   notify        ids of the webhook endpoints that are told of its outcome, late answer and finding, with a blank between
--   trace         the context of its trace (W3C traceparent), where it is traced
--   v             version of the record, the token of its wake-ups (app/core/cluster/wakekey.py), and `offline=fail` where it is
--                 unsent, or `offline=hold` where it is held, when nobody is subscribed, and `by=homing` where no caller asked for it; with a blank between. 0.1.0 wrote none. How the next version adds to all this: app/core/versions.py
-- What a script cannot read it leaves alone, and says so; an error would end the whole step, and a sweep for good.
-- All keys derive from the partition, so one call touches one slot. The only clock is Redis TIME.

local INLINE_MAX = 4096 -- as in app/core/cluster/wakeup.py
local MOST_REPORTS, EDGE, MOST_REPORT = 200, 50, 8192 -- as in app/core/commands/history.py
local MOST_HAPPENINGS, MOST_TEXT = 1000, 1024 -- as in app/core/commands/stream.py
local RECORD = 1        -- as in app/core/versions.py
local MOST_US = 1e17
local LANE_LOOK_US = 1e6 -- as in app/store/rules.py
local MOST_REST_US, MOST_PACE_MS = 3.6e9, 60000 -- as in app/core/profiles/lanes.py
local MOST_MS = 1e14    -- 3,000 years: more is a damaged record, and no time that Redis takes

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

-- The field `v` of a record and those named; nil and the reason where it must be left alone.
local function read(id, ...)
  local found = redis.pcall('HMGET', key('callback', id), 'v', ...)
  if found.err and string.sub(found.err, 1, 9) == 'WRONGTYPE' then
    return nil, 'it is no hash'
  end
  if found.err then
    error(found.err)
  end
  if found[1] and (tonumber(string.match(found[1], '^%d+')) or RECORD + 1) > RECORD then
    return nil, 'it is of a later version'
  end
  return found
end

local DAMAGED = 'what it waits for cannot be read'

-- What a response is matched by, and what has to be cleaned up; nil when this cannot be read.
local function parse(about)
  local retention, quarantine, idempotency, expectations, home, device, method, profile =
    string.match(about or '', '^%d+ %d+ (%d+) (%d+) (%S+) (%S+) (%S+) (%Z+)%z(%Z*)%z(%Z*)')
  retention, quarantine = tonumber(retention), tonumber(quarantine)
  if not device or retention > MOST_MS or quarantine > 1000 * MOST_MS then
    return nil
  end
  local topics, lane = {}, nil
  for entry in string.gmatch(expectations == '-' and '' or expectations, '[^,]+') do
    local topic = {values = {}}
    for part in string.gmatch(entry, '[^.]+') do
      local kind = string.sub(part, 1, 1)
      if not topic.digest then
        topic.digest = part
      elseif part == 'o' then
        topic.by_order = true
      elseif kind == 'v' then
        topic.values[#topic.values + 1] = string.sub(part, 2)
      elseif kind == 'l' then
        local order, width, rest = string.match(part, '^l(%l)(%d+):(%d+)')
        lane = {digest = topic.digest, order = order, width = tonumber(width), rest = 1000 * rest,
          excludes = {}, excluded_by = {}, pace = 0}
      elseif lane and kind == 'p' then
        lane.pace = tonumber(string.match(part, '^p(%d+)$')) or 0
      elseif lane and part == 's' then
        lane.stops = true
      elseif lane and (kind == 'x' or kind == 'y') then
        local others = kind == 'x' and lane.excludes or lane.excluded_by
        others[#others + 1] = string.match(part, ':(.*)$')
      end
    end
    if topic.digest then
      topics[#topics + 1] = topic
    end
  end
  return {
    retention = retention, quarantine = quarantine, idempotency = idempotency,
    topics = topics, lane = lane, home = home, device = device, method = method, profile = profile,
  }
end

-- Whether the command still keeps others from its topic: open, or in quarantine, and then for how long (µs).
local function occupies(id, now)
  local found = read(id, 'state', 'finished', 'quarantine', 'about')
  if not found then
    return true -- nobody can say what a response would mean
  end
  local _, state, finished, quarantine, about = unpack(found, 1, 5)
  if not state or not finished then
    return state
  end
  local ends = tonumber(quarantine or '0') or 0
  if ends <= now then
    return false
  end
  -- Longer than it was meant to be: the clock was set back. It begins anew, so that it ends.
  local match = parse(about)
  if match and ends - now > match.quarantine then
    redis.call('HSET', key('callback', id), 'quarantine', micros(now + match.quarantine))
    return match.quarantine
  end
  return ends - now
end

-- What keeps a command from a topic by order: true, or for how long (µs); false when it is free. Those whose record is
-- gone, or whose quarantine is over, are in nobody's way. (100 at most: a script stays short.)
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

-- Whether an open command is named by this correlation.
local function names_an_open_one(correlation)
  local holder = redis.call('GET', correlation)
  local found = holder and read(holder, 'state', 'finished')
  return holder and (not found or found[2] and not found[3])
end

local function keep_while_mine(name, id, at_ms)
  if redis.call('GET', name) == id then
    redis.call('PEXPIREAT', name, at_ms)
  end
end

-- Put an id behind all that has been on a topic so far.
local function enter_topic(topic, id, now, at_ms)
  -- What outlived its record leaves a busy topic one by one, oldest first.
  local oldest = redis.call('ZRANGE', topic, 0, 0)[1]
  if oldest and not occupies(oldest, now) then
    redis.call('ZREM', topic, oldest)
  end
  redis.call('ZADD', topic, micros(now), id)
  live_until(topic, now, at_ms)
end
