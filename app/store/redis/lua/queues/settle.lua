-- What consumers say of what they were lent.
-- Uses window.
--
-- KEYS  1-9 as in parts/window
-- ARGV  1 id of the queue  2 'd' where it reads its dead letters  3 life  4 most deliveries, 0 for ever  5 '1' where
--       devices have an order  6 times between retries take so many thousandths  7 how many of these follow, then each (µs)
--       then for each settlement: number of the loan, how, indexes (a byte each, from 0; '' is all), amount µs, reason
-- Reply {how many events were settled, then for each that was over its loan and its index, -1 for a whole loan}
-- Writes all keys. Repeated: all of it is over.

local queue, dead, most, ordered = ARGV[1], ARGV[2], tonumber(ARGV[4]), ARGV[5] == '1'
local jitter, times = tonumber(ARGV[6]), tonumber(ARGV[7])
local settled, over, freed = 0, {}, {}

local function is_over(number, index)
  over[#over + 1] = number
  over[#over + 1] = index
end

local function settle(number, how, named, amount, reason)
  local packed = window.life == ARGV[3] and redis.call('HGET', KEYS[3], number)
  if not packed then
    if named == '' then is_over(number, -1) end
    for place = 1, #named do is_over(number, string.byte(named, place)) end
    return
  end
  local deliveries, consumer, flags, references = unpack(cmsgpack.unpack(packed))
  local open, indexes, seen = {}, {}, {}
  for index = 0, #flags - 1 do
    open[index] = string.byte(flags, index + 1) == 49
    if named == '' and open[index] then indexes[#indexes + 1] = index end
  end
  for place = 1, #named do
    local index = string.byte(named, place)
    if not seen[index] then
      seen[index] = true
      if open[index] then indexes[#indexes + 1] = index else is_over(number, index) end
    end
  end
  settled = settled + #indexes
  if #indexes == 0 then return end
  if how == 'extend' then
    local ends = tonumber(redis.call('ZSCORE', KEYS[4], 'l' .. number) or 0)
    ends = math.max(ends, math.min(now + amount, tonumber(number) + LONGEST))
    redis.call('ZADD', KEYS[4], text(ends), 'l' .. number)
    return
  end
  local gone, back, tried = {}, {}, deliveries + 1
  for _, index in ipairs(indexes) do
    open[index] = false
    local reference = string.sub(references, index * REFERENCE + 1, (index + 1) * REFERENCE)
    if how == 'done' or how == 'expired' or ((how == 'dead' or how == 'retry' and most > 0 and tried >= most)
      and bury(queue, dead, tried, reason ~= '' and reason or how, consumer, reference)) then
      gone[#gone + 1] = reference
    else
      back[#back + 1] = reference
    end
  end
  leave(gone, ordered, freed)
  if how == 'done' or how == 'expired' then window[how] = window[how] + #gone end
  if how == 'expired' then window.missed = window.missed + #gone end
  window.lent = window.lent - #indexes
  local left, any = {}, false
  for index = 0, #flags - 1 do
    left[index + 1] = open[index] and '1' or '0'
    any = any or open[index]
  end
  if any then
    redis.call('HSET', KEYS[3], number, cmsgpack.pack({deliveries, consumer, table.concat(left), references}))
  else
    redis.call('HDEL', KEYS[3], number)
    redis.call('ZREM', KEYS[4], 'l' .. number)
  end
  if #back == 0 then return end
  if how == 'release' then
    put_first(string.char(deliveries) .. table.concat(back))
    return
  end
  local after = amount
  if after < 0 then after = math.floor(tonumber(ARGV[8 + math.min(deliveries, times - 1)]) * jitter / 1000) end
  local name = 'r' .. text(next_number())
  redis.call('HSET', KEYS[5], name, string.char(math.min(tried, 255)) .. table.concat(back))
  redis.call('ZADD', KEYS[4], text(now + after), name)
  window.later = window.later + #back
  window.retried = window.retried + #back
end

for place = 8 + times, #ARGV, 5 do
  settle(ARGV[place], ARGV[place + 1], ARGV[place + 2], tonumber(ARGV[place + 3]), ARGV[place + 4])
end
append(0, freed)
if window.life then keep() end
return {settled, unpack(over)}
