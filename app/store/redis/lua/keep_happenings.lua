-- Have what happens to the commands of a partition be kept from now on: it is, for as long as its stream is there.
--
-- KEYS  1 happenings
-- ARGV  1 for how long, in ms
-- Reply the id of the oldest entry: nothing that happened since then is missing
-- Writes an entry without content where there was no stream, and when it ends.
-- Repeated: it ends later.

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('XADD', KEYS[1], '*', 'opened', '')
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1][1]
