-- Read what the nodes of this cluster share, or found the cluster with what the caller proposes.
-- KEYS  1 charter
-- ARGV  1 group  2 key, both proposed  3 how long it may outlive the last node (ms)
--       4 '1' when the list of nodes is there, '0' when it is not
--       5 the group of a charter that must not be used any longer, or ''
-- Reply {group, key, for how long they have been known (ms), 1 when the list of nodes has been there before, else 0}.
-- Repeating it changes nothing but the times.
-- A charter that cannot be read, that lost its list of nodes, or that is ARGV[5]'s, is replaced: a session of which
-- nobody knows any more would go on taking its share of the responses of the old group.
-- At maxmemory only a new cluster is refused.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', KEYS[1], 'group', 'key', 'listed', 'made')
local whole = known[1] and known[2] and known[1]:match('^[!-~]+$') and known[2]:match('^[!-~]+$')
if not whole or (known[3] and ARGV[4] == '0') or known[1] == ARGV[5] then
  redis.call('DEL', KEYS[1])
  known = {ARGV[1], ARGV[2], false, string.format('%.0f', now)}
  redis.call('HSET', KEYS[1], 'version', '1', 'group', known[1], 'key', known[2], 'made', known[4])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3]) -- needs no memory, and what follows it in a script runs also at maxmemory
if ARGV[4] == '1' and not known[3] then redis.call('HSET', KEYS[1], 'listed', '1') end
return {known[1], known[2], math.max(0, now - (tonumber(known[4] or '') or 0)), known[3] and 1 or 0}
