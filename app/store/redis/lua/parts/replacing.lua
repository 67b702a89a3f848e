-- How held commands of a device make way for the last one with their key.
-- Uses namesakes, superseding.

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
