-- How a held command becomes one that waits for its answer.
-- Uses clock, keys, lines, lives, topics.

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
