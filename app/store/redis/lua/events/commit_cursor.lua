-- Writes the cursor of a reader, where nobody else has written it meanwhile.
-- KEYS: the cursors of a caller: name -> document.
-- ARGV: the name, the document that is there or '', the new one or '' to delete it, how many a caller may have, for how
--   many milliseconds they are kept.
-- Reply: 1; 0 where another document is there; -1 where the caller has as many as there may be.
-- Writes: the key. Repeated, it finds what it has written, and changes nothing.

local there = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if there ~= ARGV[2] and there ~= ARGV[3] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 1
end
if there == '' and #redis.call('HVALS', KEYS[1]) >= tonumber(ARGV[4]) then return -1 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[5]))
return 1
