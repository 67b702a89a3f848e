-- Match a response, settle its command, wake who waits.
-- Uses clock, flight, keys, lives, match, news, outcome, record, topics.
--
-- KEYS  1 what the response names: record (by id), correlation (by value) or topic (by order)  2 due  3 list
--       4 attempt, for a response by order, and with `open`
-- ARGV  1 correlation: id, value or order   2 command id, for `id`   3 topic digest   4 device id
--       5 state: running, succeeded, failed 6 result   7 error ('' is none)           8 receiving node
--       9 what is written behind its name (app/core/commands/reception.py)          10 profile that reads it so ('' is any)
--       11 `open`, where a command that has its outcome is left as it is
-- Reply {'unknown'} | {'unreadable', command id, reason} | {'mismatch', command id} | {'progress', command id, waiting nodes, trace}
--       | {'won', command id, waiting nodes, trace, finished µs, home heard}
--       | {'late', 'duplicate' or 'finished', command id, waiting nodes, trace, state, finished µs, receiving node, result, error}
-- Writes the record, and its history with progress; removes it from due and topics; publishes to the waiting nodes but
-- the receiver, and of progress and late responses to those that watch; writes what happened where that is followed.
-- Repeated: the command has its outcome, which is the answer. Nothing in a response by order tells a repetition from
-- the answer to the next command, and with `open` nothing tells the outcome of this attempt from an older one, so the
-- attempt key remembers which command this attempt met.

local MOST_REPORTS, EDGE, MOST_REPORT = 200, 50, 8192 -- as in app/core/commands/history.py

local correlation, topic_digest, device = ARGV[1], ARGV[3], ARGV[4]
local state, result, error_text, receiver, reception = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local profile = ARGV[10]
local due, list, attempt = KEYS[2], KEYS[3], KEYS[4]

local function oldest_on_topic(now)
  local known = redis.call('GET', attempt)
  if known then
    return known
  end
  -- A command by order registers only where nobody waits, so it is always the oldest.
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  return oldest and occupies(oldest, now) and oldest
end

-- Whether the response came where the command expects it, read by its own profile.
local function expected(match)
  if match.device ~= device or (profile ~= '' and match.profile ~= profile) then
    return false
  end
  for _, topic in ipairs(match.topics) do
    if topic.digest == topic_digest then
      return correlation ~= 'order' or topic.by_order
    end
  end
  return false
end

local now = now_us()
local id
if correlation == 'id' then
  id = ARGV[2]
elseif correlation == 'value' then
  id = redis.call('GET', KEYS[1])
else
  id = oldest_on_topic(now)
end
if not id then
  return {'unknown'}
end

local record = key('callback', id)
local found, reason = read(
  id, 'state', 'joined', 'about', 'finished', 'by', 'result', 'error', 'late', 'trace', 'notify')
if not found then
  return {'unreadable', id, reason}
end
local v, known_state, joined, about, finished, by, known_result, known_error, late, trace, notify = unpack(found, 1, 11)
if not known_state then
  return {'unknown'}
end
local match = parse(about)
if not match then
  return {'unreadable', id, DAMAGED}
end
if not expected(match) then
  return correlation == 'id' and {'mismatch', id} or {'unknown'}
end

if known_state == 'held' then
  local hold = redis.call('HGET', record, 'hold') or ''
  if string.match(hold, '^%d+ %d+ 0$') then
    return {'unknown'} -- nobody can have it
  end
  if state == 'running' then -- somebody has it, although its claim was given back
    begin_flight(id, now, about, match, joined, hold, match.home, due, list)
  end
end
local waiting = waiting_nodes(match, joined)
local function remember()
  if attempt then
    redis.call('SET', attempt, id, 'PX', match.retention)
  end
end

-- What is said twice in a row came twice, so it is one report.
local function report(before, seq, watch)
  if known_state == 'running' and (before or '') == result then
    return
  end
  seq = micros((tonumber(seq) or 0) + 1)
  redis.call('HSET', record, 'seq', seq)
  local history = key('history', id)
  redis.call('ZADD', history, seq, seq .. ' ' .. micros(now) .. ' ' .. (#result <= MOST_REPORT and result or ''))
  if redis.call('ZCARD', history) > MOST_REPORTS then
    local thinned = {}
    for i, one in ipairs(redis.call('ZRANGE', history, EDGE, -EDGE - 1)) do
      if i % 2 == 0 then
        thinned[#thinned + 1] = one
      end
    end
    redis.call('ZREM', history, unpack(thinned))
  end
  redis.call('PEXPIRE', history, redis.call('PTTL', record))
  happened(now, id, 'progress', 'running', match, 0, result)
  tell(id, watch, receiver)
end

if not finished and state == 'running' then
  local before = redis.call('HMGET', record, 'progress', 'seq', 'watch')
  -- A removal first, as everywhere: progress is taken at maxmemory, too.
  redis.call('HDEL', record, 'progress')
  redis.call('HSET', record, 'state', 'running')
  if result ~= '' then
    redis.call('HSET', record, 'progress', result)
  end
  report(before[1], before[2], before[3])
  if correlation == 'order' then
    remember()
  end
  return {'progress', id, waiting, trace or ''}
end
if not finished then
  local outcome = {state = state, finished = micros(now), by = receiver .. reception, result = result, error = error_text,
    words = words(v, trace), was = known_state, notify = notify}
  local heard = settle(now, id, waiting, match, due, list, outcome, receiver)
  remember()
  return {'won', id, waiting, trace or '', outcome.finished, heard}
end
local function reply(verdict)
  return {verdict, id, waiting, trace or '', known_state, finished, by or '', known_result or '', known_error or ''}
end
if ARGV[11] and redis.call('GET', attempt) ~= id then
  return reply('finished')
end
-- What a probe found is a further word (app/core/commands/reception.py).
local probed = string.find(by or '', '^%S+ %d+ v %+%d+ ')
if state ~= 'running' and (known_state == 'timed_out' or known_state == 'cancelled' or known_state == 'unsent' or probed) then
  redis.call('ZREM', key('topic', topic_digest), id)
  if not late then
    redis.call('HSET', record, 'late', string.format('{"state":"%s","result":', state)
      .. (result == '' and 'null' or result) .. ',"error":' .. (error_text == '' and 'null' or error_text)
      .. ',"received_at":' .. micros(now) .. '}')
    if notify then
      to_outbox(now, id, 'late', later_ms(now, match.retention))
    end
    local number = redis.call('HGET', record, 'verified') and 3 or 2
    happened(now, id, 'late', known_state, match, number,
      string.format('{"state":"%s","error":', state) .. (error_text == '' and 'null' or error_text) .. '}')
    remember()
    tell(id, redis.call('HGET', record, 'watch'), receiver)
    return reply('late')
  end
end
return reply('duplicate')
