-- By which clock a command is judged whose time may be over: TIME as it went when the command was registered.
--
-- TIME may be set. The span between two steps of it is an era. The last arguments of a script tell of eras, as
-- app/store/redis/driver/steps.py has them: first and last instant, and how much of TIME (µs) was set since then. The
-- last era is the present one.

-- The eras that the arguments from `first` on tell of; none where nobody knows of any.
local function eras_from(first, now)
  local eras = {}
  for i = first, #ARGV, 3 do
    eras[#eras + 1] = {first = tonumber(ARGV[i]), last = tonumber(ARGV[i + 1]), by = now - ARGV[i + 2]}
  end
  if #eras > 0 then
    eras[#eras].last = now -- what is later was registered before the clock was set back
  end
  return eras
end

-- The instant by which a command of this age is judged. Of several eras it may be of, that which lets it live longest.
local function judged_by(eras, now, created)
  local known, any = nil, now
  for _, era in ipairs(eras) do
    any = math.min(any, era.by)
    if created >= era.first and created <= era.last then
      known = math.min(known or era.by, era.by)
    end
  end
  return known or any
end

-- Whether TIME is outside of two arguments, the instants (µs) between which it must be: then it was set just now, and
-- nothing is judged by it. It is never so where the first one is left out.
local function is_set_just_now(now, first)
  local least, most = tonumber(ARGV[first] or ''), tonumber(ARGV[first + 1] or '')
  return least and (now < least or now > most)
end
