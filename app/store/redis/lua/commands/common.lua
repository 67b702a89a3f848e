-- Put in front of every script when it is loaded: the few things that all of them do.
--
-- The record `mqtt:callback:{p}:<command id>` is a hash:
--   state         as in app/core/commands/command.py
--   about         "<created µs> <deadline µs> <retention ms> <quarantine µs> <idempotency digest or -> <expectations>
--                 <home node> <device>" NUL method NUL profile NUL params. Expectations, with a comma between, are
--                 <topic digest>.<kind>.<kind>…; a kind is i (by id), o (by order), e (by echo) or v<value digest>; - is none.
--                 A lane is among them as <digest>.l<letter of its order><width>:<rest ms>:<name>: its place is taken, and freed,
--                 as a topic. A letter is p (parallel), f (fifo), a (fifo_ack), s (lifo) or l (latest)
--   joined        further waiting nodes, with a blank before each
--   watch         nodes that are told of progress as well, with a blank before each; they are waiting nodes, too
--   seq           how many reports of progress there were; app/core/commands/history.py
--   fingerprint   of the body, where there is an idempotency key
--   finished, by, result, error   the outcome: instant in µs, receiving node (app/core/commands/reception.py), JSON texts; a
--                 record is open without it
--   quarantine    until when (µs) its topic by order stays occupied after the outcome
--   rests         until when (µs) its place in a lane stays taken after the outcome
--   progress, late                JSON texts
--   hold          "<until µs> <timeout µs> <claims>", and when a claim was given back (µs), of a command that waits, or waited, to be sent. While it is `held`
--                 its deadline is the latest one that is possible, and no index but mqtt:held leads to it
--   claim         token of the last claim; one claims once
--   not_before    instant (µs) before which a held command is not claimed, where it has one
--   approval      "<until µs>" of what a second person has to approve, and behind it once that is decided
--                 " <decided at µs> <decision>", as app/core/commands/approval.py writes it. Until then it stands in no line of a
--                 lane, and its score in mqtt:held is when that time is over
--   who           the caller whose right is judged at each claim
--   sender        the node that took over sending it, as its home had died
--   notify        ids of the webhook endpoints that are told of its outcome and late answer, with a blank between
--   trace         the context of its trace (W3C traceparent), where it is traced
--   v             version of the record, the token of its wake-ups (app/core/cluster/wakekey.py), and `offline=fail` where it is
--                 unsent, or `offline=hold` where it is held, when nobody is subscribed; with a blank between. 0.1.0 wrote none. How the next version adds to all this: app/core/versions.py
-- What a script cannot read it leaves alone, and says so; an error would end the whole step, and a sweep for good.
-- All keys derive from the partition, so one call touches one slot. The only clock is Redis TIME.

local INLINE_MAX = 4096 -- as in app/core/cluster/wakeup.py
local MOST_REPORTS, EDGE, MOST_REPORT = 200, 50, 8192 -- as in app/core/commands/history.py
local MOST_HAPPENINGS, MOST_TEXT = 1000, 1024 -- as in app/core/commands/stream.py
local RECORD = 1        -- as in app/core/versions.py
local MOST_US = 1e17
local LANE_LOOK_US = 1e6 -- as in app/store/rules.py
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
        lane = {digest = topic.digest, order = order, width = tonumber(width), rest = 1000 * rest}
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

local HELD = 'mqtt:held:' .. (tag or '') -- endpoints are in no partition, and nothing of theirs is held

local function held_member(id, match)
  return id .. ' ' .. match.device
end

-- The commands that wait in a lane, by when they were registered: beside all that are held in the partition.
local function line_of(lane)
  return key('held', lane.digest)
end

-- Whether who comes stands behind all that wait in a lane.
local function queues(lane)
  return lane.order == 'f' or lane.order == 'a'
end

-- The command that is the next in a lane. What waits no more leaves its line (100 at most: a script stays short).
local function head_of(lane)
  local line, place = line_of(lane), lane.order == 's' and -1 or 0
  for _ = 1, 100 do
    local first = redis.call('ZRANGE', line, place, place)[1]
    local found = first and read(first, 'state')
    if not first or not found or found[2] == 'held' then
      return first
    end
    redis.call('ZREM', line, first)
  end
end

-- How many commands have a place in a lane, in flight or at rest, and when one may be free at the latest (µs). Those
-- without a record leave it. No rest is longer than that of the lane: the clock was set back.
local function taken_places(lane, now)
  local place, count, soonest = key('topic', lane.digest), 0, MOST_US
  for _, id in ipairs(redis.call('ZRANGE', place, 0, -1)) do
    local found = read(id, 'state', 'finished', 'about', 'rests')
    local rests = found and found[3] and tonumber(found[5] or '0') or 0
    if found and (found[3] or not found[2]) and (rests <= now or rests - now > lane.rest) then
      redis.call('ZREM', place, id)
    else
      count = count + 1
      local deadline = found and tonumber(string.match(found[4] or '', '^%d+ (%d+)')) or MOST_US
      soonest = math.min(soonest, rests > 0 and rests or deadline + LANE_LOOK_US)
    end
  end
  return count, soonest
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

-- Let a held command wait for its answer, from now on and at `home`. Returns what it says in `about` from now on.
local function begin_flight(id, now, about, match, joined, hold, home, due, list)
  redis.call('ZREM', HELD, held_member(id, match)) -- a removal first: also at maxmemory
  if match.lane then
    redis.call('ZREM', line_of(match.lane), id)
  end
  local ends, timeout, claims = string.match(hold, '^(%d+) (%d+) (%d+)')
  local created, kept, before, rest = string.match(about, '^(%d+) %d+ (%d+ %d+ %S+ %S+) (%S+) (.*)$')
  local deadline = now + timeout
  local at_ms = later_ms(deadline, match.retention)
  local others = ''
  for node in string.gmatch(joined or '', '%S+') do
    if node ~= home and node ~= before then
      others = others .. ' ' .. node
    end
  end
  if before ~= home then
    others = others .. ' ' .. before
  end
  local record = key('callback', id)
  about = table.concat({created, micros(deadline), kept, home, rest}, ' ')
  redis.call('HSET', record, 'state', 'pending', 'about', about, 'joined', others,
    'hold', table.concat({ends, timeout, claims + 1}, ' '))
  redis.call('PEXPIREAT', record, at_ms)
  redis.call('ZADD', due, micros(deadline), id)
  live_until(due, now, at_ms)
  live_until(list, now, at_ms)
  for _, topic in ipairs(match.topics) do
    enter_topic(key('topic', topic.digest), id, now, at_ms)
    for _, value in ipairs(topic.values) do
      redis.call('SET', key('correlation', value), id)
      redis.call('PEXPIREAT', key('correlation', value), at_ms)
    end
  end
end

local function waiting_nodes(match, joined)
  return match.home .. (joined or '')
end

-- The words at the end of a wake-up; nil for records of 0.1.0 that are not traced.
local function words(v, trace)
  if not v then
    return trace or nil
  end
  return (trace or '-') .. ' ' .. v
end

-- Returns '1' when the home node, which comes first, was there to hear it, else '0'.
local function wake(id, waiting, outcome, settler)
  local body = table.concat(
    {id, outcome.state, outcome.finished, outcome.by, outcome.result, outcome.error, outcome.words}, '\0')
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

-- Tell the nodes that watch a command, but the one that knows already, to look what has happened.
local function tell(id, watch, knowing)
  for node in string.gmatch(watch or '', '%S+') do
    if node ~= knowing then
      redis.call('PUBLISH', 'mqtt:node:' .. node, '\0watch ' .. id)
    end
  end
end

-- Put into the outbox that endpoints are to be told of a command; `what` is outcome or late.
local function to_outbox(now, id, what, at_ms)
  local outbox = 'mqtt:outbox:' .. tag
  redis.call('ZADD', outbox, micros(now), id .. ' ' .. what)
  live_until(outbox, now, at_ms)
end

-- Tell everybody in the cluster who follows all commands, if anybody does: nodes see to it that the stream is there then
-- (keep_happenings.lua). `offset` is how many reports before this the number counts.
local function happened(now, id, kind, state, match, offset, text)
  local stream = 'mqtt:happened:' .. tag
  if redis.call('EXISTS', stream) == 0 then
    return
  end
  local number = (tonumber(redis.call('HGET', key('callback', id), 'seq')) or 0) + offset
  redis.call('XADD', stream, 'MAXLEN', '~', MOST_HAPPENINGS, '*', 'h', table.concat({
    kind, id, micros(number), micros(now), state, match.device, match.profile, match.method,
    #text <= MOST_TEXT and text or '',
  }, '\0'))
end

-- Give an open command its outcome. The first write removes, so that Redis runs the rest also at maxmemory.
-- Returns what `wake` does, and behind it who stands first in a lane whose place it frees: `<command id> <device>`.
local function settle(now, id, waiting, match, due, list, outcome, settler)
  redis.call('ZREM', due, id)
  if outcome.was == 'held' then
    redis.call('ZREM', HELD, held_member(id, match))
    if match.lane then
      redis.call('ZREM', line_of(match.lane), id)
    end
  end
  local record = key('callback', id)
  local at_ms = later_ms(now, match.retention)
  local stays = match.quarantine > 0 and outcome.was ~= 'held' and (outcome.state == 'timed_out' or outcome.state == 'cancelled')
  local lane = match.lane
  local rests = lane and lane.rest > 0 and outcome.was ~= 'held' and outcome.state ~= 'succeeded'
  for _, topic in ipairs(match.topics) do
    if rests and topic.digest == lane.digest then
      live_until(key('topic', topic.digest), now, at_ms)
      redis.call('HSET', record, 'rests', micros(now + lane.rest))
    elseif stays and topic.by_order then
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
  if outcome.was == 'running' then -- no other one has a history
    redis.call('PEXPIREAT', key('history', id), at_ms)
  end
  live_until(list, now, at_ms)
  if match.idempotency ~= '-' then
    keep_while_mine(key('idempotency', match.idempotency), id, at_ms)
  end
  if outcome.notify then
    to_outbox(now, id, 'outcome', at_ms)
  end
  happened(now, id, 'outcome', outcome.state, match, 1, outcome.error)
  local heard = wake(id, waiting, outcome, settler)
  local follower = lane and head_of(lane)
  return follower and table.concat({heard, follower, match.device}, ' ') or heard
end

-- Cancel a command that waits in a lane in which only the last one does.
local function supersede(now, other, error_text, due, list)
  local found = read(other, 'state', 'joined', 'about', 'notify')
  local match = found and found[2] == 'held' and parse(found[4])
  if match then
    local outcome = {state = 'cancelled', finished = micros(now), by = '', result = '', error = error_text,
      words = words(found[1]), was = 'held', notify = found[5]}
    settle(now, other, waiting_nodes(match, found[3]), match, due, list, outcome, '')
  end
end
