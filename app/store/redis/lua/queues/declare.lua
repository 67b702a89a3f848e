-- Change what is declared, where nobody else has changed it meanwhile.
--
-- KEYS  1 what is declared: name -> document, and version
-- ARGV  1 the version that it has  2... for each change: name, document or '' to delete it
-- Reply the version, negative where it was another one
-- Writes the key. Repeated: it is another version.

local version = tonumber(redis.call('HGET', KEYS[1], 'version')) or 0
if version ~= tonumber(ARGV[1]) then return -version - 1 end
for place = 2, #ARGV, 2 do
  if ARGV[place + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[place])
  else
    redis.call('HSET', KEYS[1], ARGV[place], ARGV[place + 1])
  end
end
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version + 1))
return version + 1
