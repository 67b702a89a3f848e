-- How a command makes way for a later one.
-- Uses clock, match, outcome, record.

-- Cancel a command that waits in a lane in which only the last one does.
local function supersede(now, other, error_text, due, list)
  local found = read(other, 'state', 'joined', 'about', 'notify')
  local match = found and found[2] == 'held' and parse(found[4])
  if match then
    local outcome = {state = 'cancelled', finished = micros(now), by = '', result = '', error = error_text,
      words = words(found[1]), was = 'held', notify = found[5]}
    settle(now, other, waiting_nodes(match, found[3]), match, due, list, outcome, '')
  end
end
