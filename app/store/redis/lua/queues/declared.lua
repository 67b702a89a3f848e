-- Read what is declared: what was changed behind a version that was there lately, or else all of it.
--
-- KEYS  1 as in queues/declare
-- ARGV  1 the version
-- Reply {the version that it has, '1' where this is all, {for each: name, document, nothing where it was deleted}}
-- Writes nothing.

local found = redis.call('HMGET', KEYS[1], 'version', 'lately')
local version, lately = found[1] or '0', found[2] and cmsgpack.unpack(found[2]) or {}
if #lately > 0 and lately[#lately - 1] ~= version then lately = {} end  -- somebody has changed it who does not note it here
local known, changed, seen = version == ARGV[1], {}, {}
for place = 1, #lately, 2 do
  local name = lately[place + 1]
  if lately[place] == ARGV[1] then
    known = true
  elseif known and version ~= ARGV[1] and not seen[name] then
    seen[name] = true
    changed[#changed + 1], changed[#changed + 2] = name, redis.call('HGET', KEYS[1], name)
  end
end
if known then return {version, '', changed} end
return {version, '1', redis.call('HGETALL', KEYS[1])}
