-- Finds the blocks that have the events at these positions, each once.
-- KEYS: the shard, its generations.
-- ARGV: slab prefix, how many bytes of blocks are enough, then the positions in their order.
-- Reply: {up to where the shard is cold, or '', how many positions were looked for}, then for each block the first position
--   that it was found for, its id, and its fields. Positions behind that one, up to its id, are in this block or nowhere.
-- Writes: nothing.

local cuts, rows = {}, redis.call('HGETALL', KEYS[2])
for place = 1, #rows, 2 do
  local first, last, count = string.match(rows[place + 1], '^(%d+) (%d+) (%d+) %d+$')
  if not first then return redis.error_reply('ERR ' .. KEYS[2] .. ' has no generation in ' .. rows[place]) end
  if count ~= '0' then cuts[#cuts + 1] = {tonumber(first), tonumber(last), ARGV[1] .. rows[place]} end
end

local function slab_of(position)
  for _, cut in ipairs(cuts) do
    if cut[1] <= position and position <= cut[2] then return cut[3] end
  end
end

local reply, size, looked, covered = {}, 0, 0, 0
for place = 3, #ARGV do
  if size >= tonumber(ARGV[2]) then break end
  looked = looked + 1
  local position = tonumber(ARGV[place])
  local slab = position > covered and slab_of(position)
  local block = slab and redis.call('XRANGE', slab, ARGV[place] .. '-0', '+', 'COUNT', 1)[1]
  if block then
    covered = tonumber(string.match(block[1], '^%d+'))
    size = size + #block[2][2]
    reply[#reply + 1] = {ARGV[place], block[1], block[2]}
  end
end
return {redis.call('HGET', KEYS[1], 'cold') or '', looked, reply}
