-- Bring back what is due, then lend: a loan for each wish.
-- Uses window.
--
-- KEYS  1-9 as in parts/window  10 the last call of this node
-- ARGV  1 id of the queue  2 where it reads its dead letters, the life of a window that begins with this; else ''  3 loan µs  4 most deliveries, 0 for ever  5 '1' where
--       devices have an order  6 ttl µs, 0 for ever  7 '1' where one consumer takes at a time  8 id of the call
--       9... for each wish: most, consumer, '1' where it is to be noted
-- Reply {life, after how many µs the next loan runs out or a retry comes back, '' where nothing does or each wish has a
--       loan, then for each wish '', '-' where another consumer holds the queue, or {number, deliveries, until, references}}; life is '' where nothing was ever fed, and there are no dead letters
-- Writes all keys. Repeated: the same loans, for a minute.
-- Bounded: 32 due, 512 references looked at.

local queue, dead, loan, most = ARGV[1], ARGV[2] ~= '' and 'd' or '', tonumber(ARGV[3]), tonumber(ARGV[4])
local ordered, ttl, single = ARGV[5] == '1', tonumber(ARGV[6]), ARGV[7] == '1'
if not window.life then
  if dead == '' then return {'', ''} end
  window.life = ARGV[2]
  redis.call('HSET', KEYS[1], 'fed', '0')
end
local before = redis.call('GET', KEYS[10])
if before and string.sub(before, 1, #ARGV[8]) == ARGV[8] then
  return cmsgpack.unpack(string.sub(before, #ARGV[8] + 1))
end

local freed = {}
local front = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(now), 'LIMIT', 0, DUE)) do
  redis.call('ZREM', KEYS[4], name)
  if string.sub(name, 1, 1) == 'r' then
    local group = redis.call('HGET', KEYS[5], name)
    if group then
      redis.call('HDEL', KEYS[5], name)
      window.later = window.later - (#group - 1) / REFERENCE
      if string.byte(group) == 0 then window.dated = window.dated - (#group - 1) / REFERENCE end
      front[#front + 1] = group
    end
  else
    local number = string.sub(name, 2)
    local packed = redis.call('HGET', KEYS[3], number)
    if packed then
      redis.call('HDEL', KEYS[3], number)
      local deliveries, consumer, open, references = unpack(cmsgpack.unpack(packed))
      deliveries = deliveries + 1
      local kept = {}
      for index = 1, #open do
        if string.byte(open, index) == 49 then
          window.lent = window.lent - 1
          local reference = string.sub(references, (index - 1) * REFERENCE + 1, index * REFERENCE)
          if most > 0 and deliveries >= most and bury(queue, dead, deliveries, 'deadline', consumer, reference) then
            leave({reference}, ordered, freed)
          else
            kept[#kept + 1] = reference
          end
        end
      end
      if #kept > 0 then front[#front + 1] = string.char(math.min(deliveries, 255)) .. table.concat(kept) end
    end
  end
end
for place = #front, 1, -1 do
  put_first(front[place])
end
append(0, freed)
if now - window.asked >= NOTED then window.asked = now end

-- True if it is the first of its device; else it is parked.
local function is_next(reference)
  local key, place = string.sub(reference, 9, 12), string.sub(reference, 1, 8)
  if not held[key] then learn({reference}) end
  local positions = held[key]
  if positions == '' then hold(key, place) end
  if positions == '' or string.sub(positions, 1, 8) == place then return true end
  hold(key, positions .. place)
  window.parked = window.parked + 1
  return false
end

local looked = 0
local function lend(wish, consumer)
  local lately = math.max(1, redis.call('ZCOUNT', KEYS[7], '(' .. text(now - LATELY), '+inf'))
  local share = math.ceil((window.size - window.lent - window.later - window.parked) / lately)
  local cap = math.min(wish, GROUP, share)
  local limit, deliveries, count, lent, loose = cap, 0, 0, {}, {}
  for _ = 1, LOOKED do
    local group = count < limit and looked < LOOKED and pop_first()
    if not group then break end
    local tried = string.byte(group)
    if count > 0 and tried ~= deliveries then
      put_first(group)
      break
    end
    deliveries = tried
    limit = tried == 0 and cap or math.min(cap, tried == 1 and SUSPECTS or 1)
    local some = math.min(limit - count, LOOKED - looked, (#group - 1) / REFERENCE)
    local at = 2
    if not ordered and ttl == 0 then  -- all of them may be lent
      at = at + some * REFERENCE
      looked, count = looked + some, count + some
      lent[#lent + 1] = string.sub(group, 2, at - 1)
    elseif ordered then
      learn(split(string.sub(group, 2, 1 + some * REFERENCE)))
    end
    for _ = looked + 1, LOOKED do
      if at > #group or count >= limit then break end
      local reference = string.sub(group, at, at + REFERENCE - 1)
      at = at + REFERENCE
      looked = looked + 1
      if ttl > 0 and position(reference) <= now - ttl then
        window.expired = window.expired + 1
        leave({reference}, ordered, loose)
      elseif not ordered or is_next(reference) then
        count = count + 1
        lent[#lent + 1] = reference
      end
    end
    if at <= #group then put_first(string.sub(group, 1, 1) .. string.sub(group, at)) end
  end
  append(0, loose)
  if count == 0 then return '' end
  local number, references = text(next_number()), table.concat(lent)
  redis.call('HSET', KEYS[3], number, cmsgpack.pack({deliveries, consumer, string.rep('1', count), references}))
  redis.call('ZADD', KEYS[4], text(now + loan), 'l' .. number)
  window.lent = window.lent + count
  window.delivered = window.delivered + count
  if deliveries > 0 then window.again = window.again + count end
  return {number, deliveries, text(now + loan), references}
end

local reply, some, short = {window.life, ''}, false, false
for place = 9, #ARGV, 3 do
  local consumer = ARGV[place + 1]
  if ARGV[place + 2] == '1' then
    redis.call('ZREMRANGEBYSCORE', KEYS[7], '-inf', text(now - KNOWN))
    if redis.call('ZSCORE', KEYS[7], consumer) or redis.call('ZCARD', KEYS[7]) < CONSUMERS then
      redis.call('ZADD', KEYS[7], text(now), consumer)
    end
  end
  local found = '-'
  if not single or window.held_at == 0 or window.holder == consumer or now - window.held_at >= loan then
    if single then window.holder, window.held_at = consumer, now end
    found = lend(tonumber(ARGV[place]), consumer)
  end
  some, short = some or #found > 1, short or #found < 2
  reply[#reply + 1] = found
end
if short then
  local following = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
  if following[2] then reply[2] = text(math.max(0, following[2] - now)) end
end
keep()
if some then redis.call('SET', KEYS[10], ARGV[8] .. cmsgpack.pack(reply), 'PX', 60000) end
return reply
