-- Read what the nodes of this cluster share, or found the cluster with what the caller proposes.
-- KEYS  1 charter
-- ARGV  1 group  2 key, both proposed  3 how long it may outlive the last node (ms)
-- Reply {group, key}. Repeating it changes nothing but the time.
-- At maxmemory only a new cluster is refused.
local known = redis.call('HMGET', KEYS[1], 'group', 'key')
if not (known[1] and known[2]) then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'version', '1', 'group', ARGV[1], 'key', ARGV[2])
  known = {ARGV[1], ARGV[2]}
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return known
