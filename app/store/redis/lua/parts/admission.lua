-- Whether a command may wait for what others wait for.
-- Uses record, topics.

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
