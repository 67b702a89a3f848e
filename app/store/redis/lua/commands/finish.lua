-- End an open command without a response: timed out, cancelled, not sent, or sent one-way.
-- Uses clock, match, outcome, record.
--
-- KEYS  1 record  2 due  3 list
-- ARGV  1 command id  2 state  3 states that allow it, with a blank around each  4 finishing node  5 error ('' is none)
-- Reply {'missing'} | {'unreadable', reason} | {'illegal', state} | {'won', finished µs, home heard}
--       | {'lost', state, finished µs, receiving node, result, error}
-- Writes the record; removes it from due and topics (one by order may stay occupied for a while); publishes to the
-- waiting nodes but the finisher.
-- What another node took over to send, or has claimed, is unsent only when that one says so.
-- Repeated: the command has its outcome, which is the answer.

local id, state, allowed, finisher, error_text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local found, reason = read(
  id, 'state', 'joined', 'about', 'finished', 'by', 'result', 'error', 'sender', 'notify', 'hold')
if not found then
  return {'unreadable', reason}
end
local v, known_state, joined, about, finished, by, result, known_error, sender, notify, hold = unpack(found, 1, 11)
if not known_state then
  return {'missing'}
end
if finished then
  return {'lost', known_state, finished, by or '', result or '', known_error or ''}
end
local match = parse(about)
if not match then
  return {'unreadable', DAMAGED}
end
local taker = sender or (hold and known_state ~= 'held' and match.home) or finisher
if (state == 'unsent' and taker ~= finisher) or not string.find(allowed, ' ' .. known_state .. ' ', 1, true) then
  return {'illegal', known_state}
end
local now = now_us()
local outcome = {
  state = state, finished = micros(now), by = '', result = '', error = error_text, words = words(v), was = known_state,
  notify = notify,
}
local heard = settle(now, id, waiting_nodes(match, joined), match, KEYS[2], KEYS[3], outcome, finisher)
return {'won', outcome.finished, heard}
