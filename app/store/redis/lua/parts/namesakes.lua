-- The held commands of a device that have a key in common.
-- Uses lines, record.

-- Those that wait at a device with a key, besides the command `id`.
local function namesakes(id, device, name)
  local found = {}
  for _, member in ipairs(redis.call('ZRANGE', HELD, 0, -1)) do
    local other, of = string.match(member, '^(%S+) (.*)$')
    local told = of == device and other ~= id and read(other, 'replaces', 'about', 'approval')
    if told and told[2] == name then
      found[#found + 1] = {id = other, created = tonumber(string.match(told[3] or '', '^%d+') or '0'),
        unapproved = told[4] and not string.find(told[4], ' ', 1, true)}
    end
  end
  return found
end
