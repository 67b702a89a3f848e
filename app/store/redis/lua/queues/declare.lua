-- Change what is declared, where nobody else has changed it meanwhile. Versions are instants of this Redis, bumped to be
-- unique: one that forgot its last second gives none again.
--
-- KEYS  1 what is declared: name -> document, version, and lately: msgpack of version, name of the last changes in turns
-- ARGV  1 the version that it has  2... for each change: name, document or '' to delete it
-- Reply the version, negative where it was another one
-- Writes the key. Repeated: it is another version.

local LATELY = 64  -- changes
local time = redis.call('TIME')
local found = redis.call('HMGET', KEYS[1], 'version', 'lately')
local version = tonumber(found[1]) or 0
if version ~= tonumber(ARGV[1]) then return -version - 1 end
local changed = math.max(version + 1, time[1] * 1000000 + time[2])
local text, all, lately = string.format('%.0f', changed), found[2] and cmsgpack.unpack(found[2]) or {}, {}
if #all > 0 and all[#all - 1] ~= found[1] then all = {} end  -- somebody has changed it who does not note it here
for place = 2, #ARGV, 2 do
  if ARGV[place + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[place])
  else
    redis.call('HSET', KEYS[1], ARGV[place], ARGV[place + 1])
  end
  all[#all + 1], all[#all + 2] = text, ARGV[place]
end
for place = math.max(1, #all - 2 * LATELY + 1), #all do lately[#lately + 1] = all[place] end
redis.call('HSET', KEYS[1], 'version', text, 'lately', cmsgpack.pack(lately))
return changed
