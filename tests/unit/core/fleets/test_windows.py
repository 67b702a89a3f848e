"""Windows of a run: against an oracle that looks at the clock on the wall each minute, over changes of clocks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest

from app.core.errors import InvalidInputError
from app.core.fleets.windows import DAYS, check_windows, closes_at, is_open, opens_at, read_windows
from app.core.zones import read_zone

MINUTE = 60_000_000
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca")


def micros(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000_000)


def shown(at: int | None, zone: str) -> str:
    return "" if at is None else datetime.fromtimestamp(at / 1_000_000, ZoneInfo(zone)).strftime("%a %H:%M %Z")


def oracle(window: dict[str, str], at: int) -> bool:
    """Return whether the wall shows a time in it, said once more in other words."""
    wall = datetime.fromtimestamp(at // 1_000_000, ZoneInfo(window["zone"]))
    first, last = DAYS.index(window["days"][:3]), DAYS.index(window["days"][-3:])
    begins = {DAYS[(first + number) % 7] for number in range((last - first) % 7 + 1)}
    today, yesterday = DAYS[wall.weekday()], DAYS[wall.weekday() - 1]
    time, begin, end = f"{wall:%H:%M}", window["from"], window["to"]
    if begin < end:
        return today in begins and begin <= time < end
    return (today in begins and time >= begin) or (yesterday in begins and time < end)


@pytest.mark.parametrize("seed", range(12))
def test_they_are_open_when_the_wall_says_so_and_the_next_change_is_found(seed: int) -> None:
    random = Random(seed)
    asked = []
    for _ in range(random.randint(1, 3)):
        opens, closes = random.sample([f"{hour:02}:{minute:02}" for hour in range(24) for minute in (0, 30, 45)], 2)
        days = f"{random.choice(DAYS)}-{random.choice(DAYS)}"
        asked.append({"days": days, "from": opens, "to": closes, "zone": random.choice(ZONES)})
    windows = read_windows(asked)
    change = random.choice(["2026-03-28T00:00", "2026-10-24T00:00", "2026-04-04T00:00", "2026-02-14T00:00"])
    begin = micros(change)
    states = [any(oracle(one, begin + minute * MINUTE) for one in asked) for minute in range(4 * 24 * 60)]
    for minute in range(0, len(states), 7):
        at = begin + minute * MINUTE + random.randrange(MINUTE)
        assert is_open(windows, at) is states[minute]
    for minute in random.sample(range(2 * 24 * 60), 25):
        at = begin + minute * MINUTE + 17
        behind = next((n for n in range(minute, len(states)) if states[n] is not states[minute]), None)
        found = closes_at(windows, at) if states[minute] else opens_at(windows, at)
        if behind is not None:
            assert found == begin + behind * MINUTE, (asked, minute)


def test_no_window_is_lost_or_double_when_clocks_change() -> None:
    berlin = read_windows([{"from": "02:00", "to": "03:00", "zone": "Europe/Berlin"}])
    spring = micros("2026-03-28T12:00", "Europe/Berlin")
    assert shown(opens_at(berlin, spring), "Europe/Berlin") == "Mon 02:00 CEST", "on Sunday there is no such hour"
    autumn = micros("2026-10-25T00:00", "Europe/Berlin")
    opens = opens_at(berlin, autumn)
    assert shown(opens, "Europe/Berlin") == "Sun 02:00 CEST"
    assert opens is not None
    assert closes_at(berlin, opens) == opens + 120 * MINUTE, "both hours, as one window"
    late = read_windows([{"from": "02:30", "to": "05:00", "zone": "Europe/Berlin"}])
    sunday = micros("2026-03-29T00:00", "Europe/Berlin")
    assert shown(opens_at(late, sunday), "Europe/Berlin") == "Sun 03:00 CEST"


def test_what_is_always_open_never_closes_and_none_is_always_open() -> None:
    at = micros("2026-06-01T12:00")
    always = read_windows([{"from": "00:00", "to": "24:00"}])
    assert is_open(always, at)
    assert closes_at(always, at) is None
    assert is_open((), at)
    assert closes_at((), at) is None
    assert opens_at((), at) is None


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_it_takes_few_looks_at_the_wall_to_find_what_is_weeks_away(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """A driver asks for each few of its commands, and everybody else waits meanwhile."""
    looks = []

    def counted(field: str, name: str) -> ZoneInfo:
        looks.append(name)
        return read_zone(field, name)

    monkeypatch.setattr("app.core.fleets.windows.read_zone", counted)
    always = read_windows([{"from": "00:00", "to": "24:00", "zone": zone}])
    assert closes_at(always, micros("2026-06-01T12:00")) is None
    assert len(looks) < 100


@pytest.mark.parametrize(
    ("asked", "field", "says"),
    [
        ("night", "windows", "is a string; a list is needed"),
        ([{}] * 9, "windows", "has 9 entries; allowed are 8"),
        ([{"from": "02:00"}], "windows.0.to", "is missing; a time of day"),
        ([{"from": 2, "to": "05:00"}], "windows.0.from", "is a number; a time of day"),
        ([{"from": "2:00", "to": "05:00"}], "windows.0.from", "'2:00' is no time of day; allowed: 00:00 to 24:00"),
        ([{"from": "02:00", "to": "02:00"}], "windows.0.to", "02:00 to 02:00 is no time; all day is 00:00 to 24:00"),
        ([{"from": "24:00", "to": "05:00"}], "windows.0.to", "is no time"),
        ([{"from": "02:00", "to": "05:00", "days": "mon-fry"}], "windows.0.days", "'mon-fry' names no days; allowed"),
        ([{"from": "02:00", "to": "05:00", "days": ["mon"]}], "windows.0.days", "is an array; allowed: mon"),
        (
            [{"from": "02:00", "to": "05:00", "zone": "Europe/Berln"}],
            "windows.0.zone",
            "'Europe/Berln' is no time zone; the nearest is Europe/Berlin",
        ),
        ([{"from": "02:00", "to": "05:00", "until": "x"}], "windows.0.until", "is unknown; allowed: days, from"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked: object, field: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        read_windows(asked)
    assert error.value.field == field
    assert says in error.value.reason


def test_a_window_is_open_for_as_long_as_a_command_may_take() -> None:
    windows = read_windows([{"from": "23:59", "to": "00:01"}])
    check_windows(windows, timedelta(minutes=2))
    with pytest.raises(InvalidInputError, match="is open for 0:02:00, and the command has a timeout of 0:02:01"):
        check_windows(windows, timedelta(minutes=2, seconds=1))


def test_days_are_lists_and_ranges_that_go_over_the_weekend() -> None:
    def days(said: str) -> Sequence[str]:
        (window,) = read_windows([{"from": "02:00", "to": "05:00", "days": said}])
        return [DAYS[one] for one in sorted(window.days)]

    assert days("sat-mon, wed") == ["mon", "wed", "sat", "sun"]
    assert days("tue") == ["tue"]
    assert datetime(2026, 6, 1, tzinfo=UTC).weekday() == 0
