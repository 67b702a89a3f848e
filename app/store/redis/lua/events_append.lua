-- Appends a block of events to a shard, if whoever appends still may, and if what they take for granted holds.
-- KEYS: the shard, its generations, its last values, their topics; and what is known of the call, where it must not
--   happen twice.
-- ARGV: slab prefix, epoch or '', number of entries, bytes as quotas count them, the block, number of conditions, then
--   for each a topic and a position or '', then for each last value that changes its topic, its place in the block from
--   0, and its record or '' to delete it.
-- Reply: {'ok', position of the last one}, {'fenced', epoch} or {'changed', topic, expected, found or ''}.
-- Writes: all of its keys, and the slab of the current generation. `mqtt:shard:{t}` has head, generation and epoch,
--   `mqtt:cuts:{t}` for each generation "first last count size".

local function text(number)
  return string.format('%.0f', number)
end

if KEYS[5] then
  local done = redis.call('GET', KEYS[5])
  if done then return {'ok', done} end
end

local known = redis.call('HMGET', KEYS[1], 'head', 'generation', 'epoch')
local head, generation, epoch = tonumber(known[1]) or 0, known[2] or '1', tonumber(known[3]) or 0
if ARGV[2] ~= '' and tonumber(ARGV[2]) < epoch then return {'fenced', text(epoch)} end

local count, size, conditions = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
local at = 7
for _ = 1, conditions do
  local value = redis.call('HGET', KEYS[3], ARGV[at])
  local found = value and string.match(value, '^%d+') or ''
  if found ~= ARGV[at + 1] then return {'changed', ARGV[at], ARGV[at + 1], found} end
  at = at + 2
end

local time = redis.call('TIME')
local first = math.max(head + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
local last = first + count - 1
redis.call('XADD', ARGV[1] .. generation, text(last) .. '-0', 'b', ARGV[5])
for place = at, #ARGV, 3 do
  local topic, record = ARGV[place], ARGV[place + 2]
  if record == '' then
    redis.call('HDEL', KEYS[3], topic)
    redis.call('ZREM', KEYS[4], topic)
  elseif redis.call('HSET', KEYS[3], topic, text(first + tonumber(ARGV[place + 1])) .. ' ' .. record) == 1 then
    redis.call('ZADD', KEYS[4], 0, topic)
  end
end
local cut = redis.call('HGET', KEYS[2], generation) or ''
local was_first, was_count, was_size = string.match(cut, '^(%d+) %d+ (%d+) (%d+)$')
redis.call('HSET', KEYS[2], generation, table.concat({was_first and was_first ~= '0' and was_first or text(first),
  text(last), text((tonumber(was_count) or 0) + count), text((tonumber(was_size) or 0) + size)}, ' '))
redis.call('HSET', KEYS[1], 'head', text(last), 'generation', generation,
  'epoch', ARGV[2] ~= '' and ARGV[2] or text(epoch))
if KEYS[5] then redis.call('SET', KEYS[5], text(last), 'PX', 60000) end
return {'ok', text(last)}
