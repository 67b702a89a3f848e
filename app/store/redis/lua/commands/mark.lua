-- Note that an open command was sent or acknowledged.
-- Uses record.
--
-- KEYS  1 record
-- ARGV  1 state  2 states that it may follow, with a blank around each  3 node that claims to send it ('' is none)
-- Reply 1 when it was noted, else 0
-- Writes the record's state, and its sender.
-- Repeated: the state does not follow itself, so nothing is written; a sender gets the reply that it got before.

local found = read(string.match(KEYS[1], '[^:]+$'), 'state', 'sender')
local state, sender = found and found[2], found and found[3]
if state and state == ARGV[1] and sender and sender == ARGV[3] then
  return 1
end
if not state or not string.find(ARGV[2], ' ' .. state .. ' ', 1, true) then
  return 0
end
-- A removal first: also at maxmemory.
redis.call('HDEL', KEYS[1], 'state')
redis.call('HSET', KEYS[1], 'state', ARGV[1])
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'sender', ARGV[3])
end
return 1
