-- Read which access directory the nodes of this cluster have, or say which, where nobody has said so.
-- KEYS  1 charter
-- ARGV  1 id of the caller's directory  2 how long it may outlive the last node (ms)
-- Reply the id. Repeating it changes nothing. An id that cannot be read is none.
-- At maxmemory only the first word is refused.
local known = redis.call('HGET', KEYS[1], 'directory')
if not (known and known:match('^[!-~]+$')) then
  redis.call('HSET', KEYS[1], 'directory', ARGV[1])
  known = ARGV[1]
end
if redis.call('PTTL', KEYS[1]) < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return known
