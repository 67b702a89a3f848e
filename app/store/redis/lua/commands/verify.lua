-- Annex to a command that has timed out what a probe found of it since.
-- Uses clock, lives, match, news, record.
--
-- KEYS  1 record
-- ARGV  1 command id  2 finding, up to the instant at which it was found (app/store/rules.py)
--       3 what happened, as streams of all commands tell it
-- Reply {'missing'} | {'unreadable', reason} | {'illegal', what it is} | {'annexed'} | {'known'}
-- Writes the record; has endpoints told, and those that watch, and writes what happened where that is followed.
-- Repeated: it is known. What the device answered itself, if late, needs no probe.

local id, finding, told = unpack(ARGV, 1, 3)
local found, reason = read(id, 'state', 'about', 'late', 'verified', 'notify', 'watch')
if not found then
  return {'unreadable', reason}
end
local _, state, about, late, verified, notify, watch = unpack(found, 1, 7)
if not state then
  return {'missing'}
end
if state ~= 'timed_out' then
  return {'illegal', state}
end
if verified then
  return {'known'}
end
if late then
  return {'illegal', 'answered'}
end
local match = parse(about)
if not match then
  return {'unreadable', DAMAGED}
end
local now = now_us()
redis.call('HSET', KEYS[1], 'verified', finding .. micros(now) .. '}')
if notify then
  to_outbox(now, id, 'verified', later_ms(now, match.retention))
end
happened(now, id, 'verified', state, match, 2, told)
tell(id, watch, '')
return {'annexed'}
