"""Cron expressions in time zones: the instants that they mean, around changes of the clock too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from app.core.errors import InvalidInputError
from app.fleets.timetable import Timetable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def shown(instant: int) -> str:
    return (EPOCH + timedelta(microseconds=instant)).strftime("%m-%dT%H:%M")


@pytest.mark.parametrize(
    ("cron", "zone", "behind", "expected"),
    [
        ("30 2 * * mon", "UTC", "2026-11-27T00:00", ["11-30T02:30", "12-07T02:30"]),
        ("30 2 * * mon", "Europe/Berlin", "2026-11-27T00:00", ["11-30T01:30", "12-07T01:30"]),
        ("*/20 * * * *", "UTC", "2026-11-27T00:20", ["11-27T00:40", "11-27T01:00"]),
        ("0 0 1 jan,jul *", "Asia/Kolkata", "2026-11-27T00:00", ["12-31T18:30", "06-30T18:30"]),
        ("0 9 l * *", "UTC", "2026-02-01T00:00", ["02-28T09:00", "03-31T09:00"]),
        ("0 9 * * 5#2", "UTC", "2026-11-01T00:00", ["11-13T09:00", "12-11T09:00"]),
        # Day of month or day of week, as in Debian's cron, where neither is a star.
        ("0 0 13 * fri", "UTC", "2026-11-07T00:00", ["11-13T00:00", "11-20T00:00"]),
        # 2026-03-29: 02:00 becomes 03:00 in Berlin. What does not exist runs right after the gap, once.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29T01:00", "03-30T00:30"]),
        ("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29T01:00", "03-30T00:00"]),
        ("30 * * * *", "Europe/Berlin", "2026-03-29T00:00", ["03-29T00:30", "03-29T01:30"]),
        # 2026-10-25: 03:00 becomes 02:00. What exists twice runs once, what goes by the hour each hour.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["10-25T00:30", "10-26T01:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10", ["10-26T01:30", "10-27T01:30"]),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T00:00", ["10-25T00:30", "10-25T01:30"]),
        # Half an hour, on Lord Howe Island.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", ["10-03T15:30", "10-04T15:15"]),
    ],
)
def test_instants(cron: str, zone: str, behind: str, expected: list[str]) -> None:
    found = list(islice(Timetable(cron, zone).after(micros(behind)), 2))
    assert [shown(one) for one in found] == expected


@pytest.mark.parametrize("cron", ["30 2 * * *", "0,30 2,3 * * *", "5 * * * *"])
@pytest.mark.parametrize(
    ("zone", "day"),
    [("Europe/Berlin", "2026-03-28"), ("Europe/Berlin", "2026-10-24"), ("Australia/Lord_Howe", "2026-04-04")],
)
def test_instants_are_the_same_from_wherever_one_looks(cron: str, zone: str, day: str) -> None:
    """A node that looks at any moment finds the next one of the same series: else an occurrence would run twice."""
    table, begin = Timetable(cron, zone), micros(f"{day}T00:00")
    series = list(islice(table.after(begin), 40))
    assert series == sorted(set(series))
    for behind in range(begin, begin + 36 * 3_600_000_000, 29 * 60_000_000):
        expected = next((one for one in series if one > behind), None)
        if expected is not None:
            assert next(table.after(behind)) == expected


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("", "allowed: five fields"),
        ("* * * *", "allowed: five fields"),
        ("0 * * * * *", "allowed: five fields"),
        ("@daily", "allowed: five fields"),
        ("61 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("٣ * * * *", "allowed: five fields"),
        ("* * * * 1#2/3", "bad day-of-week"),
        ("0 0 31 2,4 mon" + " " * 200, "allowed: five fields"),
    ],
)
def test_a_wrong_expression_is_refused(cron: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why) as error:
        Timetable(cron, "UTC")
    assert error.value.field == "cron"


@pytest.mark.parametrize("zone", ["", "Europe", "Europe/Berln", "../etc/passwd", "CEST+2", "ä"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInputError, match='allowed: an IANA name such as "Europe/Berlin"') as error:
        Timetable("* * * * *", zone)
    assert error.value.field == "zone"


def test_the_nearest_zone_is_named() -> None:
    with pytest.raises(InvalidInputError, match="the nearest is Europe/Berlin"):
        Timetable("* * * * *", "Europe/Berln")
