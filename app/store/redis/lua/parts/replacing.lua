-- How held commands of a device make way for the last one with their key.
-- Uses lines, record, superseding.

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

local function came_before(one, other)
  return one.created < other.created or (one.created == other.created and one.id < other.id)
end

-- Have those that came before a command (`id`, `created`, `device`, `name`) make way for it, or it for one that came later.
-- Returns whether it was the command. One that a second person has yet to approve takes nobody's place.
local function last_one_stays(now, own, error_text, due, list)
  local later
  for _, other in ipairs(namesakes(own.id, own.device, own.name)) do
    if came_before(other, own) then
      supersede(now, other.id, (string.gsub(error_text, '%*', own.id)), due, list)
    elseif not other.unapproved then
      later = other
    end
  end
  if later then
    supersede(now, own.id, (string.gsub(error_text, '%*', later.id)), due, list)
  end
  return later ~= nil
end
