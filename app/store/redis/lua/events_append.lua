-- Appends a block of events to a shard, if whoever appends still may, and if what they take for granted holds.
-- KEYS: the shard, its generations, its last values, their topics; and what is known of the call, or of the last batch
--   of each writer: neither happens twice.
-- ARGV: slab prefix, epoch or '', number of entries, bytes as quotas count them, '1' when these bound it, the block, its
--   marks, how many topics may have a last value, how many bytes these may take, '1' when all of these must get theirs, the writer
--   or '', the number of his batch, how many writers are remembered, number of conditions, then for each a topic and a
--   position or '', then for each last value that changes its topic, its place in the block from 0, and its record or ''
--   to delete it.
-- Reply: {'ok', position of the last one, last values for which there was no room: by number, by bytes}, {'fenced',
--   epoch}, {'over'} where quotas leave no room, {'changed', topic, expected, found or ''} or {'full', topic that cannot
--   have a last value, '1' for bytes}.
-- Writes: all of its keys, and the slab of the current generation. `mqtt:shard:{t}` has head, generation, epoch, and
--   held: the bytes of last values with their topics; taken: all bytes that it ever took, and most: how many these may
--   become, as a keeper says; `mqtt:cuts:{t}` for each generation "first last count size".

local function text(number)
  return string.format('%.0f', number)
end

local writer, taken = ARGV[11], false
if writer == '' then
  local done = redis.call('GET', KEYS[5])
  if done then return {'ok', done, 0, 0} end
else
  taken = redis.call('HGET', KEYS[5], writer)
  if taken then
    local number, position = string.match(taken, '^(%d+) (%d+)$')
    if tonumber(ARGV[12]) <= tonumber(number) then return {'ok', position, 0, 0} end
  end
end

local known = redis.call('HMGET', KEYS[1], 'head', 'generation', 'epoch', 'held', 'taken', 'most')
local head, generation, epoch = tonumber(known[1]) or 0, known[2] or '1', tonumber(known[3]) or 0
if ARGV[2] ~= '' and tonumber(ARGV[2]) < epoch then return {'fenced', text(epoch)} end

local count, size, conditions = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[14])
local at = 15
local before, most = tonumber(known[5]) or 0, tonumber(known[6])
if most and ARGV[5] == '1' and before >= most then return {'over'} end
for _ = 1, conditions do
  local value = redis.call('HGET', KEYS[3], ARGV[at])
  local found = value and string.match(value, '^%d+') or ''
  if found ~= ARGV[at + 1] then return {'changed', ARGV[at], ARGV[at + 1], found} end
  at = at + 2
end

-- Homing's own topics have room that others lack.
local function allowed(topic, most)
  return tonumber(most) * (string.sub(topic, 1, 8) == '$homing/' and 2 or 1)
end

-- What the value that a topic has takes, or nil. A damaged one has no position in front.
local function size_of(topic)
  local value = redis.call('HGET', KEYS[3], topic)
  return value and #topic + #value - (string.find(value, ' ', 1, true) or 0)
end

-- All but those that have appended last.
local function forget_writers()
  local writers = redis.call('HGETALL', KEYS[5])
  local all = {}
  for place = 1, #writers, 2 do
    all[#all + 1] = {writers[place], tonumber(string.match(writers[place + 1], '%d+$'))}
  end
  table.sort(all, function(one, other) return one[2] < other[2] end)
  for place = 1, #all - tonumber(ARGV[13]) do redis.call('HDEL', KEYS[5], all[place][1]) end
end

local values, held = redis.call('ZCARD', KEYS[4]), tonumber(known[4]) or 0
if ARGV[10] == '1' then
  local would, bytes, growing = values, held, {}
  for place = at, #ARGV, 3 do
    local topic, record = ARGV[place], ARGV[place + 2]
    if record ~= '' then
      local was = size_of(topic)
      if not was then
        would = would + 1
        if would > allowed(topic, ARGV[8]) then return {'full', topic, '0'} end
      end
      local more = #topic + #record - (was or 0)
      bytes = bytes + more
      if more > 0 then growing[#growing + 1] = topic end
    end
  end
  for _, topic in ipairs(growing) do
    if bytes > allowed(topic, ARGV[9]) then return {'full', topic, '1'} end
  end
end

local time = redis.call('TIME')
local first = math.max(head + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
local last = first + count - 1
redis.call('XADD', ARGV[1] .. generation, text(last) .. '-0', 'b', ARGV[6], 'h', ARGV[7])
local too_many, too_large = 0, 0
for place = at, #ARGV, 3 do
  local topic, record = ARGV[place], ARGV[place + 2]
  local was = size_of(topic)
  local grows = #topic + #record - (was or 0)
  local keep = record ~= ''
  if keep and not was and values >= allowed(topic, ARGV[8]) then
    keep, too_many = false, too_many + 1
  elseif keep and grows > 0 and held + grows > allowed(topic, ARGV[9]) then
    keep, too_large = false, too_large + 1
  end
  if keep then
    redis.call('HSET', KEYS[3], topic, text(first + tonumber(ARGV[place + 1])) .. ' ' .. record)
    held = held + grows
    if not was then
      redis.call('ZADD', KEYS[4], 0, topic)
      values = values + 1
    end
  elseif was then
    redis.call('HDEL', KEYS[3], topic)
    redis.call('ZREM', KEYS[4], topic)
    values, held = values - 1, held - was
  end
end
local cut = redis.call('HGET', KEYS[2], generation) or ''
local was_first, was_count, was_size = string.match(cut, '^(%d+) %d+ (%d+) (%d+)$')
redis.call('HSET', KEYS[2], generation, table.concat({was_first and was_first ~= '0' and was_first or text(first),
  text(last), text((tonumber(was_count) or 0) + count), text((tonumber(was_size) or 0) + size)}, ' '))
redis.call('HSET', KEYS[1], 'head', text(last), 'generation', generation,
  'epoch', ARGV[2] ~= '' and ARGV[2] or text(epoch), 'held', text(math.max(0, held)),
  'taken', text(before + size))
if writer == '' then
  redis.call('SET', KEYS[5], text(last), 'PX', 60000)
else
  redis.call('HSET', KEYS[5], writer, ARGV[12] .. ' ' .. text(last))
  if not taken then forget_writers() end
end
return {'ok', text(last), too_many, too_large}
