-- The keys of a command, which derive from its partition: so one call touches one slot.

local tag = string.match(KEYS[1], '{%d+}')

local function key(kind, name)
  return 'mqtt:' .. kind .. ':' .. tag .. ':' .. name
end
