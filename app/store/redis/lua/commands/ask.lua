-- Let one question ask a device for its state, of all that would do so within the same second.
-- Uses clock.
--
-- KEYS  1 turn
-- ARGV  1 command id of the question  2 how long nobody else asks (µs)
-- Reply the command id of the question that has the turn
-- Writes the turn, unless another question has it. After the clock was set back the turn is anybody's.
-- Repeated: it has its turn still, or takes the next one.

local id, length, now = ARGV[1], tonumber(ARGV[2]), now_us()
local at, holder = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (.+)$')
local ago = at and now - tonumber(at)
if ago and ago >= 0 and ago < length then
  return holder
end
redis.call('SET', KEYS[1], micros(now) .. ' ' .. id, 'PX', math.ceil(length / 1000))
return id
