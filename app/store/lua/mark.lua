-- Note that an open command was sent or acknowledged.
--
-- KEYS  1 record
-- ARGV  1 state  2 states that it may follow, with a blank around each
-- Reply 1 when it was noted, else 0
-- Writes the record's state.
-- Repeated: the state does not follow itself, so nothing is written.

local state = redis.call('HGET', KEYS[1], 'state')
if not state or not string.find(ARGV[2], ' ' .. state .. ' ', 1, true) then
  return 0
end
-- A removal first: also at maxmemory.
redis.call('HDEL', KEYS[1], 'state')
redis.call('HSET', KEYS[1], 'state', ARGV[1])
return 1
