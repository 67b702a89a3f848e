-- What stops a lane, and who is the next one in it.
-- Uses clock, keys, lines.
--
-- Beside the line of a lane lies, as a string, …:stopped, "<at µs> <command id>" of the end after which those that wait
-- wait for a person; until that person's word.

local function stop_of(lane)
  return line_of(lane) .. ':stopped'
end

-- Stop the lane of a command that has ended, where that is no success. `stood` says of one that was held that it was in line.
local function note_end(lane, now, id, outcome, stood)
  if not lane or not lane.stops or outcome.state == 'succeeded' then
    return
  end
  local unsent, stops = outcome.state == 'unsent', nil
  if outcome.was == 'held' then
    stops = unsent and stood
  else
    stops = not unsent or redis.call('HGET', key('callback', id), 'hold')
  end
  if stops and redis.call('EXISTS', stop_of(lane)) == 0 then
    redis.call('SET', stop_of(lane), micros(now) .. ' ' .. id)
  end
end

-- Who may have a turn now that a place of a lane is free: the next one there, or who waits for that lane to be empty.
local function next_of(lane)
  local first = not (lane.stops and redis.call('EXISTS', stop_of(lane)) == 1) and head_of(lane)
  for _, digest in ipairs(lane.excluded_by) do
    first = first or head_of({digest = digest})
  end
  return first or nil
end
