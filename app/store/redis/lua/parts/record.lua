-- The record of a command.
-- Uses keys.
--
-- The record `mqtt:callback:{p}:<command id>` is a hash:
--   state         as in app/core/commands/command.py
--   about         "<created µs> <deadline µs> <retention ms> <quarantine µs> <idempotency digest or -> <expectations>
--                 <home node> <device>" NUL method NUL profile NUL params. Expectations, with a comma between, are
--                 <topic digest>.<kind>.<kind>…; a kind is i (by id), o (by order), e (by echo) or v<value digest>; - is none.
--                 A lane is among them as <digest>.l<letter of its order><width>:<rest ms>:<name>: its place is taken, and freed,
--                 as a topic. A letter is p (parallel), f (fifo), a (fifo_ack), s (lifo) or l (latest). Behind it may stand
--                 .p<µs between two sends>, .s (it stops), .x<name>:<digest> of each lane that it excludes, and .y<…> of each that excludes it
--   joined        further waiting nodes, with a blank before each
--   watch         nodes that are told of progress as well, with a blank before each; they are waiting nodes, too
--   seq           how many reports of progress there were; app/core/commands/history.py
--   fingerprint   of the body, where there is an idempotency key
--   finished, by, result, error   the outcome: instant in µs, receiving node (app/core/commands/reception.py), JSON texts; a
--                 record is open without it
--   quarantine    until when (µs) its topic by order stays occupied after the outcome
--   rests         until when (µs) its place in a lane stays taken after the outcome
--   progress, late, verified      JSON texts
--   hold          "<until µs> <timeout µs> <claims>", and when a claim was given back (µs), of a command that waits, or waited, to be sent. While it is `held`
--                 its deadline is the latest one that is possible, and no index but mqtt:held leads to it
--   claim         token of the last claim; one claims once
--   not_before    instant (µs) before which a held command is not claimed, where it has one
--   approval      "<until µs>" of what a second person has to approve, and behind it once that is decided
--                 " <decided at µs> <decision>", as app/core/commands/approval.py writes it. Until then it stands in no line of a
--                 lane, and its score in mqtt:held is when that time is over
--   replaces      the key of which the last command that waits at the device stays, where it has one
--   run           the fleet run that it belongs to, where it belongs to one
--   who           the caller whose right is judged at each claim
--   sender        the node that took over sending it, as its home had died
--   notify        ids of the webhook endpoints that are told of its outcome, late answer and finding, with a blank between
--   trace         the context of its trace (W3C traceparent), where it is traced
--   v             version of the record, the token of its wake-ups (app/core/cluster/wakekey.py), and `offline=fail` where it is
--                 unsent, or `offline=hold` where it is held, when nobody is subscribed, and `by=homing` where no caller asked for it; with a blank between. 0.1.0 wrote none. How the next version adds to all this: app/core/versions.py
-- What a script cannot read it leaves alone, and says so; an error would end the whole step, and a sweep for good.

local RECORD = 1 -- as in app/core/versions.py

-- The field `v` of a record and those named; nil and the reason where it must be left alone.
local function read(id, ...)
  local found = redis.pcall('HMGET', key('callback', id), 'v', ...)
  if found.err and string.sub(found.err, 1, 9) == 'WRONGTYPE' then
    return nil, 'it is no hash'
  end
  if found.err then
    error(found.err)
  end
  if found[1] and (tonumber(string.match(found[1], '^%d+')) or RECORD + 1) > RECORD then
    return nil, 'it is of a later version'
  end
  return found
end
