-- The step that ends a command, and what goes with it.
-- Uses clock, keys, lines, lives, news, stops.

local INLINE_MAX = 4096 -- as in app/core/cluster/wakeup.py

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

local function keep_while_mine(name, id, at_ms)
  if redis.call('GET', name) == id then
    redis.call('PEXPIREAT', name, at_ms)
  end
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
