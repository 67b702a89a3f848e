-- Appends a block of events to a shard, if whoever appends still may, and if what they take for granted holds.
-- KEYS: the shard, its generations, its last values, their topics; what is known of the call, or of the last batch
--   of each writer: neither happens twice; owners of last values, and what each tenant has.
-- ARGV: slab prefix, epoch or '', number of entries, bytes as quotas count them, '1' when these bound it, the block, its
--   marks, how many topics may have a last value, how many bytes these may take, '1' when all of these must get theirs, the writer
--   or '', the number of his batch, or for how many milliseconds a call without writer is known, how many writers are remembered, number of conditions, among how many tenants the room
--   for last values is divided or 0, a hint for those who feed queues,
--   the last position that the asker knows of, then for each condition a topic and a position or '', then for each last value that
--   changes its topic, its place in the block from 0, its record or '' to delete it, and its tenant or ''.
-- Reply: {'ok', position of the last one, then a name and a number for each bound that left no room for last values},
--   {'fenced', epoch}, {'behind'} when the shard has not got so far as the asker knows of, {'over'} where quotas leave no room, {'changed', topic, expected, found or ''} or {'full', topic
--   that cannot have a last value, bound}.
-- Writes: all of its keys, and the slab of the current generation. `mqtt:shard:{t}` has head, generation, epoch, and
--   held: the bytes of last values with their topics; taken: all bytes that it ever took, and most: how many these may
--   become, as a keeper says; told: when the last hint was given; `mqtt:cuts:{t}` for each generation "first last count size".

local HINT = 10000  -- µs: hints of a shard come no closer, as those who miss one look each 20 ms

local function text(number)
  return string.format('%.0f', number)
end

local writer, taken = ARGV[11], false
if writer == '' then
  local done = redis.call('GET', KEYS[5])
  if done then return {'ok', done} end
else
  taken = redis.call('HGET', KEYS[5], writer)
  if taken then
    local number, position = string.match(taken, '^(%d+) (%d+)$')
    if tonumber(ARGV[12]) <= tonumber(number) then return {'ok', position} end
  end
end

local known = redis.call('HMGET', KEYS[1], 'head', 'generation', 'epoch', 'held', 'taken', 'most', 'told')
local head, generation, epoch = tonumber(known[1]) or 0, known[2] or '1', tonumber(known[3]) or 0
if ARGV[2] ~= '' and tonumber(ARGV[2]) < epoch then return {'fenced', text(epoch)} end
if head < tonumber(ARGV[17]) then return {'behind'} end  -- it has forgotten what it gave out

local count, size, conditions = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[14])
local tenants, at = tonumber(ARGV[15]), 18
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

-- What tenants have, by number and by bytes; all others are of ''.
local numbers, sizes, changed = {}, {}, {}
local function read_shares(many, large)
  local shares = tenants > 0 and redis.call('HGETALL', KEYS[7]) or {}
  for place = 1, #shares, 2 do
    local number, bytes = string.match(shares[place + 1], '^(%d+) (%d+)$')
    many[shares[place]], large[shares[place]] = tonumber(number), tonumber(bytes)
  end
end
read_shares(numbers, sizes)

-- What others have not used yet of their own parts: half of the room is divided among tenants.
local function kept(tenant, most, total, used)
  if tenants == 0 then return 0 end
  local part = math.floor(most / (2 * tenants))
  local left, nobodys = (tenants - 1) * part, total
  for other, taken in pairs(used) do
    nobodys = nobodys - taken
    if other ~= tenant then left = left - math.min(part, taken) end
  end
  if tenant ~= '' then left = left - math.min(part, math.max(0, nobodys)) end
  return math.max(0, left)
end

-- Which bound leaves no room for a total that one more value of the tenant makes, or nil.
local function bound_of(name, topic, tenant, most, total, more, used)
  most = allowed(topic, most)
  if total + more > most then return name end
  if total + more > most - kept(tenant, most, total, used) then return name .. '_share' end
end

-- The value of a topic counts to this tenant now, in these sums; it has none without a size.
local function count_to(topic, tenant, size, many, large)
  if tenants == 0 then return end
  local was = redis.call('ZRANGEBYLEX', KEYS[6], '[' .. topic .. '\0', '(' .. topic .. '\1')[1]
  local now = size and tenant ~= '' and topic .. '\0' .. text(size) .. ' ' .. tenant or nil
  local bytes, owner = string.match(was or '', '%z(%d+) (.+)$')
  if owner then
    many[owner] = math.max(0, (many[owner] or 0) - 1)
    large[owner] = math.max(0, (large[owner] or 0) - tonumber(bytes))
  end
  if now then many[tenant], large[tenant] = (many[tenant] or 0) + 1, (large[tenant] or 0) + size end
  return was, now, owner
end

-- The same for good.
local function own(topic, tenant, size)
  local was, now, owner = count_to(topic, tenant, size, numbers, sizes)
  if was == now then return end
  if was then redis.call('ZREM', KEYS[6], was) end
  if now then redis.call('ZADD', KEYS[6], 0, now) end
  if owner then changed[owner] = true end
  if now then changed[tenant] = true end
end

local values, held = redis.call('ZCARD', KEYS[4]), tonumber(known[4]) or 0
if ARGV[10] == '1' then
  local would, bytes, growing, many, large = values, held, {}, {}, {}
  read_shares(many, large)
  for place = at, #ARGV, 4 do
    local topic, record, tenant = ARGV[place], ARGV[place + 2], ARGV[place + 3]
    if record ~= '' then
      local was = size_of(topic)
      if not was then
        local bound = bound_of('last_value', topic, tenant, ARGV[8], would, 1, many)
        if bound then return {'full', topic, bound} end
        would = would + 1
      end
      count_to(topic, tenant, #topic + #record, many, large)
      local more = #topic + #record - (was or 0)
      bytes = bytes + more
      if more > 0 then growing[#growing + 1] = {topic, tenant} end
    end
  end
  for _, one in ipairs(growing) do
    local bound = bound_of('last_value_bytes', one[1], one[2], ARGV[9], bytes, 0, large)
    if bound then return {'full', one[1], bound} end
  end
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local first = math.max(head + 1, now)
local last = first + count - 1
redis.call('XADD', ARGV[1] .. generation, text(last) .. '-0', 'b', ARGV[6], 'h', ARGV[7])
local bounds = {}
for place = at, #ARGV, 4 do
  local topic, record, tenant = ARGV[place], ARGV[place + 2], ARGV[place + 3]
  local was = size_of(topic)
  local grows = #topic + #record - (was or 0)
  local bound = nil
  if record ~= '' then
    bound = not was and bound_of('last_value', topic, tenant, ARGV[8], values, 1, numbers)
      or grows > 0 and bound_of('last_value_bytes', topic, tenant, ARGV[9], held, grows, sizes)
    if bound then bounds[bound] = (bounds[bound] or 0) + 1 end
  end
  if record ~= '' and not bound then
    own(topic, tenant, #topic + #record)
    redis.call('HSET', KEYS[3], topic, text(first + tonumber(ARGV[place + 1])) .. ' ' .. record)
    held = held + grows
    if not was then
      redis.call('ZADD', KEYS[4], 0, topic)
      values = values + 1
    end
  else
    own(topic, '', nil)
    if was then
      redis.call('HDEL', KEYS[3], topic)
      redis.call('ZREM', KEYS[4], topic)
      values, held = values - 1, held - was
    end
  end
end
for tenant in pairs(changed) do
  if numbers[tenant] > 0 then
    redis.call('HSET', KEYS[7], tenant, text(numbers[tenant]) .. ' ' .. text(sizes[tenant]))
  else
    redis.call('HDEL', KEYS[7], tenant)
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
  redis.call('SET', KEYS[5], text(last), 'PX', tonumber(ARGV[12]))
else
  redis.call('HSET', KEYS[5], writer, ARGV[12] .. ' ' .. text(last))
  if not taken then forget_writers() end
end
if math.abs(now - (tonumber(known[7]) or 0)) >= HINT then
  redis.call('HSET', KEYS[1], 'told', text(now))
  redis.pcall('PUBLISH', 'mqtt:queue-hints', ARGV[16])  -- who may not do so has no queues
end
local reply = {'ok', text(last)}
for bound, count in pairs(bounds) do
  reply[#reply + 1] = bound
  reply[#reply + 1] = count
end
return reply
