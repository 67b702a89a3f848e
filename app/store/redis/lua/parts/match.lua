-- What a command waits for, as its record says it in `about`.

local DAMAGED = 'what it waits for cannot be read'
local MOST_MS = 1e14 -- 3,000 years: more is a damaged record, and no time that Redis takes

-- What a response is matched by, and what has to be cleaned up; nil when this cannot be read.
local function parse(about)
  local retention, quarantine, idempotency, expectations, home, device, method, profile =
    string.match(about or '', '^%d+ %d+ (%d+) (%d+) (%S+) (%S+) (%S+) (%Z+)%z(%Z*)%z(%Z*)')
  retention, quarantine = tonumber(retention), tonumber(quarantine)
  if not device or retention > MOST_MS or quarantine > 1000 * MOST_MS then
    return nil
  end
  local topics, lane = {}, nil
  for entry in string.gmatch(expectations == '-' and '' or expectations, '[^,]+') do
    local topic = {values = {}}
    for part in string.gmatch(entry, '[^.]+') do
      local kind = string.sub(part, 1, 1)
      if not topic.digest then
        topic.digest = part
      elseif part == 'o' then
        topic.by_order = true
      elseif kind == 'v' then
        topic.values[#topic.values + 1] = string.sub(part, 2)
      elseif kind == 'l' then
        local order, width, rest = string.match(part, '^l(%l)(%d+):(%d+)')
        lane = {digest = topic.digest, order = order, width = tonumber(width), rest = 1000 * rest,
          excludes = {}, excluded_by = {}, pace = 0}
      elseif lane and kind == 'p' then
        lane.pace = tonumber(string.match(part, '^p(%d+)$')) or 0
      elseif lane and part == 's' then
        lane.stops = true
      elseif lane and (kind == 'x' or kind == 'y') then
        local others = kind == 'x' and lane.excludes or lane.excluded_by
        others[#others + 1] = string.match(part, ':(.*)$')
      end
    end
    if topic.digest then
      topics[#topics + 1] = topic
    end
  end
  return {
    retention = retention, quarantine = quarantine, idempotency = idempotency,
    topics = topics, lane = lane, home = home, device = device, method = method, profile = profile,
  }
end
