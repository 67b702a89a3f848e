-- Tells a shard of a position that it gave out and has forgotten: it goes on behind that one, and readers are told.
-- KEYS: the shard.
-- ARGV: the position, how many spans are remembered.
-- Reply: nothing where the shard has got so far; else the span in which events may be missing: after, until.
-- Writes: the key. `forgot` has the latest spans, as "after-until after-until".

local MORE = 1000000  -- µs: so much more than the asker others may have got

local function text(number)
  return string.format('%.0f', number)
end

local known = redis.call('HMGET', KEYS[1], 'head', 'forgot')
local head, position = tonumber(known[1]) or 0, tonumber(ARGV[1])
if head >= position then return {} end

local time = redis.call('TIME')
local last = math.max(position + MORE, tonumber(time[1]) * 1000000 + tonumber(time[2]))
local spans = {}
for span in string.gmatch(known[2] or '', '%S+') do spans[#spans + 1] = span end
spans[#spans + 1] = text(head) .. '-' .. text(last)
local first = math.max(1, #spans + 1 - ARGV[2])
redis.call('HSET', KEYS[1], 'head', text(last), 'forgot', table.concat(spans, ' ', first))
return {text(head), text(last)}
