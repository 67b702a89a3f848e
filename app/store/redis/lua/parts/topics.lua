-- The commands that wait on a topic.
-- Uses clock, keys, lives, match, record.

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
