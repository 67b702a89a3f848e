-- Settle an open command by what a probe found in the state of its device.
-- Uses clock, match, outcome, record.
--
-- KEYS  1 record  2 due  3 list
-- ARGV  1 command id  2 state  3 states that allow it, with a blank around each  4 node that found it
--       5 what is written behind its name (app/core/commands/reception.py)       6 error ('' is none)
-- Reply {'missing'} | {'unreadable', reason} | {'illegal', what it is} | {'won', finished µs, home heard}
--       | {'lost', state, finished µs, receiving node, result, error}
-- Writes the record; removes it from due and topics; publishes to the waiting nodes but the one that found it.
-- After its deadline a command has only the end that the deadline gives it, and one without a response has another.
-- Repeated: the command has its outcome, which is the answer.

local id, state, allowed, finder, reception, error_text = unpack(ARGV, 1, 6)
local found, reason = read(
  id, 'state', 'joined', 'about', 'finished', 'by', 'result', 'error', 'trace', 'notify')
if not found then
  return {'unreadable', reason}
end
local v, known_state, joined, about, finished, by, result, known_error, trace, notify = unpack(found, 1, 10)
if not known_state then
  return {'missing'}
end
if finished then
  return {'lost', known_state, finished, by or '', result or '', known_error or ''}
end
if not string.find(allowed, ' ' .. known_state .. ' ', 1, true) then
  return {'illegal', known_state}
end
local match = parse(about)
local deadline = tonumber(string.match(about or '', '^%d+ (%d+)'))
if not match or not deadline then
  return {'unreadable', DAMAGED}
end
if #match.topics == (match.lane and 1 or 0) then
  return {'illegal', 'one-way'}
end
local now = now_us()
if now > deadline then
  return {'illegal', 'past its deadline'}
end
local outcome = {
  state = state, finished = micros(now), by = finder .. reception, result = '', error = error_text,
  words = words(v, trace), was = known_state, notify = notify,
}
local heard = settle(now, id, waiting_nodes(match, joined), match, KEYS[2], KEYS[3], outcome, finder)
return {'won', outcome.finished, heard}
