-- Telling others what has happened to a command.
-- Uses clock, keys, lives.

local MOST_HAPPENINGS, MOST_TEXT = 1000, 1024 -- as in app/core/commands/stream.py

-- Tell the nodes that watch a command, but the one that knows already, to look what has happened.
local function tell(id, watch, knowing)
  for node in string.gmatch(watch or '', '%S+') do
    if node ~= knowing then
      redis.call('PUBLISH', 'mqtt:node:' .. node, '\0watch ' .. id)
    end
  end
end

-- Put into the outbox that endpoints are to be told of a command; `what` is outcome, late, verified or asked.
local function to_outbox(now, id, what, at_ms)
  local outbox = 'mqtt:outbox:' .. tag
  redis.call('ZADD', outbox, micros(now), id .. ' ' .. what)
  live_until(outbox, now, at_ms)
end

-- Tell everybody in the cluster who follows all commands, if anybody does: nodes see to it that the stream is there then
-- (keep_happenings.lua). `offset` is how many reports before this the number counts.
local function happened(now, id, kind, state, match, offset, text)
  local stream = 'mqtt:happened:' .. tag
  if redis.call('EXISTS', stream) == 0 then
    return
  end
  local number = (tonumber(redis.call('HGET', key('callback', id), 'seq')) or 0) + offset
  redis.call('XADD', stream, 'MAXLEN', '~', MOST_HAPPENINGS, '*', 'h', table.concat({
    kind, id, micros(number), micros(now), state, match.device, match.profile, match.method,
    #text <= MOST_TEXT and text or '',
  }, '\0'))
end
