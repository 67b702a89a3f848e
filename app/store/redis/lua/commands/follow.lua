-- Read a command with the latest of its reports, and watch it.
-- Uses match, record.
--
-- KEYS  1 record  2 history
-- ARGV  1 command id  2 number of the last report that is known  3 node that watches from now on ('' is none)
--       4 most nodes that watch  then the names of fields
-- Reply {'missing'} | {'unreadable', reason} | {'found', values of the fields, reports}
-- Writes the record's watching and joined nodes.
-- Repeated: the node watches already.

local MOST_JOINED = 12 -- of waiting nodes; further ones find out by reading

local id, watcher = ARGV[1], ARGV[3]
local found, reason = read(id, 'state', 'about', 'joined', 'watch')
if not found then
  return {'unreadable', reason}
end
local _, state, about, joined, watch = unpack(found, 1, 5)
if not state then
  return {'missing'}
end
local record = KEYS[1]

local function has(nodes, node)
  return string.find((nodes or '') .. ' ', ' ' .. node .. ' ', 1, true)
end

local match = parse(about)
if watcher ~= '' and match and not has(watch, watcher) then
  watch = (watch or '') .. ' ' .. watcher
  local _, count = string.gsub(watch, '%S+', '')
  if count > tonumber(ARGV[4]) then
    watch = string.gsub(watch, '^ %S+', '')
  end
  redis.call('HDEL', record, 'watch') -- a removal first: also at maxmemory
  redis.call('HSET', record, 'watch', watch)
  local _, waiting = string.gsub(joined or '', '%S+', '')
  if watcher ~= match.home and not has(joined, watcher) and waiting < MOST_JOINED then
    redis.call('HSET', record, 'joined', (joined or '') .. ' ' .. watcher)
  end
end

local reports = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[2], '+inf')
local names = {unpack(ARGV, 5)}
return {'found', redis.call('HMGET', record, unpack(names)), reports}
