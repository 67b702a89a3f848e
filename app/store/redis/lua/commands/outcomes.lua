-- The step that ends a command, and what goes with it. Behind lanes.lua.

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

-- Put into the outbox that endpoints are to be told of a command; `what` is outcome, late or verified.
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
  local stood
  if outcome.was == 'held' then
    redis.call('ZREM', HELD, held_member(id, match))
    stood = match.lane and redis.call('ZREM', line_of(match.lane), id) == 1
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
  note_end(lane, now, id, outcome, stood)
  local heard = wake(id, waiting, outcome, settler)
  local follower = lane and next_of(lane)
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
