-- Note the decision of a second person about a held command.
-- Uses clock, eras, lines, lives, match, outcome, record, replacing, superseding.
--
-- KEYS  1 record  2 due  3 list
-- ARGV  1 command id  2 decision, as the field `approval` has it  3 `approved` or `refused`  4 error of what is refused
--       5 deciding node  6 error of those in whose place it comes, in a lane in which only the last one waits
--       7 error of those in whose place it comes as they have its key; in place of the id of the last one it has a *
--       8, 9 between which instants (µs) TIME must be, then eras of the clock; where the node knows of them
-- Reply {'approved'} | {'refused', finished µs, home heard} | {'ended', state, finished µs, receiving node, result, error}
--       | {'lost'}: it waits for no second person, or not any more
--       | {'stepped', µs}: the clock was set just now, and nothing is judged by it
-- Writes the record and mqtt:held; puts it into its line. What is refused is ended as finish.lua does it.
-- Repeated: the decision is there, so it is the answer: {'approved'}, or {'ended', …} of what it has ended.

local id, record, decision = ARGV[1], KEYS[1], ARGV[2]
local found = read(id, 'state', 'joined', 'about', 'hold', 'approval', 'notify', 'finished', 'by', 'result', 'error',
  'replaces')
if not found then
  return {'lost'}
end
local v, state, joined, about, hold, approval, notify, finished, by, result, error_text, name = unpack(found, 1, 12)
local ends, decided = string.match(approval or '', '^(%d+)(.*)$')
if ends and string.match(decided, '^ %d+ (.*)$') == decision then
  if ARGV[3] == 'refused' and finished then
    return {'ended', state, finished, by or '', result or '', error_text or ''}
  end
  return {'approved'}
end
local match, now = parse(about or nil), now_us()
local kept, timeout = string.match(hold or '', '^(%d+) (%d+)')
if state ~= 'held' or not match or not kept or decided ~= '' then
  return {'lost'}
end
if is_set_just_now(now, 8) then
  return {'stepped', micros(now)}
end
local judged = judged_by(eras_from(10, now), now, tonumber(string.match(about, '^%d+')))
if math.min(tonumber(ends), tonumber(kept)) <= judged then
  return {'lost'}
end
local told = table.concat({ends, micros(now), decision}, ' ')
if ARGV[3] == 'refused' then
  local outcome = {
    state = 'cancelled', finished = micros(now), by = '', result = '', error = ARGV[4], words = words(v), was = state,
    notify = notify,
  }
  local heard = settle(now, id, waiting_nodes(match, joined), match, KEYS[2], KEYS[3], outcome, ARGV[5])
  redis.call('HSET', record, 'approval', told)
  return {'refused', outcome.finished, heard}
end
redis.call('HSET', record, 'approval', told)
local at_ms = later_ms(tonumber(kept) + timeout, match.retention)
redis.call('ZADD', HELD, kept, held_member(id, match))
live_until(HELD, now, at_ms)
local lane = match.lane
if lane then
  if lane.order == 'l' then
    for _, other in ipairs(redis.call('ZRANGE', line_of(lane), 0, -1)) do
      supersede(now, other, ARGV[6], KEYS[2], KEYS[3])
    end
  end
  redis.call('ZADD', line_of(lane), micros(now), id)
  live_until(line_of(lane), now, at_ms)
end
if name then
  last_one_stays(now, {id = id, created = tonumber(string.match(about, '^%d+')), device = match.device, name = name},
    ARGV[7], KEYS[2], KEYS[3])
end
return {'approved'}
