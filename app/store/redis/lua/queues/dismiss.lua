-- Bring back all that a consumer was lent, as if it had given it back, and forget it.
-- Uses window.
--
-- KEYS  1-9 as in parts/window
-- ARGV  1 the consumer
-- Reply how many references came back
-- Writes the window, ready, loans, due and consumers. Repeated: it has none.
-- Bounded: by the references of a window.

local mine, count = {}, 0
local loans = redis.call('HGETALL', KEYS[3])
for place = 1, #loans, 2 do
  local deliveries, consumer, open, references = unpack(cmsgpack.unpack(loans[place + 1]))
  if consumer == ARGV[1] then
    local back = {}
    for index = 1, #open do
      if string.byte(open, index) == 49 then
        back[#back + 1] = string.sub(references, (index - 1) * REFERENCE + 1, index * REFERENCE)
      end
    end
    count = count + #back
    mine[#mine + 1] = {loans[place], string.char(deliveries) .. table.concat(back)}
  end
end
table.sort(mine, function(one, other) return tonumber(one[1]) > tonumber(other[1]) end)
for _, loan in ipairs(mine) do
  redis.call('HDEL', KEYS[3], loan[1])
  redis.call('ZREM', KEYS[4], 'l' .. loan[1])
  put_first(loan[2])
end
window.lent = window.lent - count
redis.call('ZREM', KEYS[7], ARGV[1])
if window.holder == ARGV[1] then window.holder, window.held_at = '', 0 end
if window.life then keep() end
return count
