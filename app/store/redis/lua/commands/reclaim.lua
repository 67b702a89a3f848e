-- Tell a store that may have forgotten it that a held command was claimed, and perhaps sent.
-- Uses clock, flight, keys, lives, match, places, record.
--
-- KEYS  1 record  2 due  3 list
-- ARGV  1 command id  2 node that has claimed it  3 token of its claim  4 member of the list
--       then fields and values of the record as they were after the claim
-- Reply 'kept': it is pending by this claim | 'ended': it has an outcome, or the claim was undone
--       | 'taken': another node has claimed it since | 'unreadable'
--       | 'again': the claim was forgotten, and is in place again | 'restored': so was the command
-- Writes record, due, list, topics, correlations, idempotency key; removes it from mqtt:held.
-- Repeated: it is pending by this claim.

local id, token = ARGV[1], ARGV[3]

-- Put a record that is gone on the books again, as it was before its claim; `about`, `joined` and `hold` of it.
local function restored()
  local fields = {}
  for i = 5, #ARGV, 2 do
    fields[ARGV[i]] = ARGV[i + 1]
  end
  local about, match = fields.about, parse(fields.about)
  local ends, timeout, claims = string.match(fields.hold or '', '^(%d+) (%d+) (%d+)')
  if not match or not ends then
    return nil
  end
  redis.call('HSET', KEYS[1], unpack(ARGV, 5))
  redis.call('ZADD', KEYS[3], string.match(about, '^%d+'), ARGV[4])
  local idempotency = key('idempotency', match.idempotency)
  if match.idempotency ~= '-' and redis.call('SET', idempotency, id, 'NX') then
    redis.call('PEXPIREAT', idempotency, later_ms(now_us() + timeout, match.retention))
  end
  return about, fields.joined, table.concat({ends, timeout, claims - 1}, ' ')
end

local found = read(id, 'state', 'about', 'joined', 'hold', 'claim', 'finished')
if not found then
  return 'unreadable'
end
local _, state, about, joined, hold, claim, finished = unpack(found, 1, 7)
local told = state and 'again' or 'restored'
if not state then
  about, joined, hold = restored()
elseif finished or not hold or (state == 'held' and claim == token) then
  return 'ended'
elseif state ~= 'held' then
  return claim == token and 'kept' or 'taken'
end
local match = parse(about or nil)
if not match then
  return 'unreadable'
end
local now = now_us()
begin_flight(id, now, about, match, joined, hold, ARGV[2], KEYS[2], KEYS[3])
note_sent(match.lane, now)
redis.call('HSET', KEYS[1], 'claim', token)
return told
