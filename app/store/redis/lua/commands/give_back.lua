-- Undo a claim of a command that nobody got.
-- Uses clock, keys, lines, lives, match, record, replacing, superseding.
--
-- KEYS  1 record  2 due  3 list
-- ARGV  1 command id  2 token of the claim  3 error of what another one came after, in a lane in which only the last
--       one waits; in place of that one's id it has a *. 4 the same of what waits with one key
-- Reply 1 when it is held, else 0
-- Writes record and mqtt:held; removes it from due, topics and correlations, so that no response finds it by those.
-- Where another one waits in its place by now, it is cancelled, and all its nodes are told. Those that came before it
-- with its key make way for it.
-- Repeated: it is held, or has ended. A claim with this token that is still under way is void.

local id, record = ARGV[1], KEYS[1]
local found = read(id, 'state', 'about', 'hold', 'claim', 'approval', 'replaces')
if not found then
  return 0
end
local _, state, about, hold, claim, approval, name = unpack(found, 1, 7)
if state == 'held' then
  redis.call('HSET', record, 'claim', ARGV[2])
  return 1
end
local match = parse(about)
if state ~= 'pending' or claim ~= ARGV[2] or not match or not hold then
  return 0
end
redis.call('ZREM', KEYS[2], id) -- a removal first: also at maxmemory
for _, topic in ipairs(match.topics) do
  redis.call('ZREM', key('topic', topic.digest), id)
  for _, value in ipairs(topic.values) do
    if redis.call('GET', key('correlation', value)) == id then
      redis.call('DEL', key('correlation', value))
    end
  end
end
local now = now_us()
local ends, timeout, claims = string.match(hold, '^(%d+) (%d+) (%d+)')
local created, rest = string.match(about, '^(%d+) %d+ (.*)$')
local latest = tonumber(ends) + timeout
local at_ms = later_ms(latest, match.retention)
redis.call('HSET', record, 'state', 'held', 'about', table.concat({created, micros(latest), rest}, ' '),
  'hold', table.concat({ends, timeout, claims, micros(now)}, ' '))
redis.call('PEXPIREAT', record, at_ms)
redis.call('ZADD', HELD, ends, held_member(id, match))
live_until(HELD, now, at_ms)
live_until(KEYS[3], now, at_ms)
local lane = match.lane
if lane then
  redis.call('ZADD', line_of(lane), string.match(approval or '', '^%d+ (%d+)') or created, id)
  live_until(line_of(lane), now, at_ms)
  local last = lane.order == 'l' and redis.call('ZRANGE', line_of(lane), -1, -1)[1] or id
  if last ~= id then
    supersede(now, id, (string.gsub(ARGV[3], '%*', last)), KEYS[2], KEYS[3])
    return 0
  end
end
local own = {id = id, created = tonumber(created), device = match.device, name = name}
if name and last_one_stays(now, own, ARGV[4], KEYS[2], KEYS[3]) then
  return 0
end
return 1
