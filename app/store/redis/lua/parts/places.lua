-- Who is in flight in the lane of a device, and whether it lets the next one go.
-- Uses clock, keys, lines, record, stops.
--
-- The place of a lane is a topic. Beside its line lies, as a string, …:sent, when a command left through it last (µs),
-- where its lane has a pace; for as long as any pace may ask.

local MOST_US = 1e17
local LANE_LOOK_US = 1e6 -- as in app/store/rules.py
local MOST_REST_US, MOST_PACE_MS = 3.6e9, 60000 -- as in app/core/profiles/lanes.py

-- Whether who comes stands behind all that wait in a lane.
local function queues(lane)
  return lane.order == 'f' or lane.order == 'a'
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

local function words_of(text)
  local found = {}
  for word in string.gmatch(text, '%S+') do
    found[#found + 1] = word
  end
  return found
end

local function sent_of(lane)
  return line_of(lane) .. ':sent'
end

-- What keeps the commands of a lane back besides those before them: until when (µs), or nil. Lanes that it excludes have
-- something in flight, or its pace is not over. It is never longer than the pace: the clock was set back.
local function kept_back(lane, now)
  local latest
  for _, digest in ipairs(lane.excludes) do
    local count, soonest = taken_places({digest = digest, rest = MOST_REST_US}, now)
    if count > 0 then
      latest = math.max(latest or 0, soonest)
    end
  end
  local sent = lane.pace > 0 and tonumber(redis.call('GET', sent_of(lane)) or '')
  if sent and sent > now then
    sent = now
    redis.call('SET', sent_of(lane), micros(now), 'PX', MOST_PACE_MS)
  end
  if sent and now < sent + lane.pace then
    latest = math.max(latest or 0, sent + lane.pace)
  end
  return latest
end

-- Until when a lane lets nobody go (µs); nil where it does.
local function closed_until(lane, now)
  if lane.stops and redis.call('EXISTS', stop_of(lane)) == 1 then
    return MOST_US
  end
  local count, soonest = taken_places(lane, now)
  if count >= lane.width then
    return soonest
  end
  return kept_back(lane, now)
end

-- Note that a command leaves now.
local function note_sent(lane, now)
  if lane and lane.pace > 0 then
    redis.call('SET', sent_of(lane), micros(now), 'PX', MOST_PACE_MS)
  end
end
