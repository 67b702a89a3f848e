-- Appends a block of events to a shard, if whoever appends still may, and if what they take for granted holds.
-- KEYS: the shard, its generations, its last values, their topics; and what is known of the call, or of the last batch
--   of each writer: neither happens twice.
-- ARGV: slab prefix, epoch or '', number of entries, bytes as quotas count them, the block, how many topics may have a
--   last value, '1' when all of these must get theirs, the writer or '', the number of his batch, how many writers are
--   remembered, number of conditions, then for each a topic and a position or '', then for each last value that changes
--   its topic, its place in the block from 0, and its record or '' to delete it.
-- Reply: {'ok', position of the last one, last values for which there was no room}, {'fenced', epoch}, {'changed',
--   topic, expected, found or ''} or {'full', topic that cannot have a last value}.
-- Writes: all of its keys, and the slab of the current generation. `mqtt:shard:{t}` has head, generation and epoch,
--   `mqtt:cuts:{t}` for each generation "first last count size".

local function text(number)
  return string.format('%.0f', number)
end

local writer, taken = ARGV[8], false
if writer == '' then
  local done = redis.call('GET', KEYS[5])
  if done then return {'ok', done, 0} end
else
  taken = redis.call('HGET', KEYS[5], writer)
  if taken then
    local number, position = string.match(taken, '^(%d+) (%d+)$')
    if tonumber(ARGV[9]) <= tonumber(number) then return {'ok', position, 0} end
  end
end

local known = redis.call('HMGET', KEYS[1], 'head', 'generation', 'epoch')
local head, generation, epoch = tonumber(known[1]) or 0, known[2] or '1', tonumber(known[3]) or 0
if ARGV[2] ~= '' and tonumber(ARGV[2]) < epoch then return {'fenced', text(epoch)} end

local count, size, conditions = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[11])
local at = 12
for _ = 1, conditions do
  local value = redis.call('HGET', KEYS[3], ARGV[at])
  local found = value and string.match(value, '^%d+') or ''
  if found ~= ARGV[at + 1] then return {'changed', ARGV[at], ARGV[at + 1], found} end
  at = at + 2
end

-- Homing's own topics have room that others lack.
local function allowed(topic)
  return tonumber(ARGV[6]) * (string.sub(topic, 1, 8) == '$homing/' and 2 or 1)
end

-- All but those that have appended last.
local function forget_writers()
  local known = redis.call('HGETALL', KEYS[5])
  local all = {}
  for place = 1, #known, 2 do
    all[#all + 1] = {known[place], tonumber(string.match(known[place + 1], '%d+$'))}
  end
  table.sort(all, function(one, other) return one[2] < other[2] end)
  for place = 1, #all - tonumber(ARGV[10]) do redis.call('HDEL', KEYS[5], all[place][1]) end
end

local values, forgotten = redis.call('ZCARD', KEYS[4]), 0
if ARGV[7] == '1' then
  local would = values
  for place = at, #ARGV, 3 do
    if ARGV[place + 2] ~= '' and not redis.call('ZSCORE', KEYS[4], ARGV[place]) then
      would = would + 1
      if would > allowed(ARGV[place]) then return {'full', ARGV[place]} end
    end
  end
end

local time = redis.call('TIME')
local first = math.max(head + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
local last = first + count - 1
redis.call('XADD', ARGV[1] .. generation, text(last) .. '-0', 'b', ARGV[5])
for place = at, #ARGV, 3 do
  local topic, record = ARGV[place], ARGV[place + 2]
  if record == '' then
    values = values - redis.call('HDEL', KEYS[3], topic)
    redis.call('ZREM', KEYS[4], topic)
  elseif values >= allowed(topic) and not redis.call('ZSCORE', KEYS[4], topic) then
    forgotten = forgotten + 1
  elseif redis.call('HSET', KEYS[3], topic, text(first + tonumber(ARGV[place + 1])) .. ' ' .. record) == 1 then
    redis.call('ZADD', KEYS[4], 0, topic)
    values = values + 1
  end
end
local cut = redis.call('HGET', KEYS[2], generation) or ''
local was_first, was_count, was_size = string.match(cut, '^(%d+) %d+ (%d+) (%d+)$')
redis.call('HSET', KEYS[2], generation, table.concat({was_first and was_first ~= '0' and was_first or text(first),
  text(last), text((tonumber(was_count) or 0) + count), text((tonumber(was_size) or 0) + size)}, ' '))
redis.call('HSET', KEYS[1], 'head', text(last), 'generation', generation,
  'epoch', ARGV[2] ~= '' and ARGV[2] or text(epoch))
if writer == '' then
  redis.call('SET', KEYS[5], text(last), 'PX', 60000)
else
  redis.call('HSET', KEYS[5], writer, ARGV[9] .. ' ' .. text(last))
  if not taken then forget_writers() end
end
return {'ok', text(last), forgotten}
