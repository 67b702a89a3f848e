"""The windows of a run: times of days in a zone, outside of which nothing is handed out.

An instant is in a window when the clock on the wall there shows a time in it. So nothing is converted, and when clocks
change no window is lost and none comes twice. Instants are in microseconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.core.errors import InvalidInputError
from app.core.fleets.fields import list_of, members_of
from app.core.payload import kind_in_words
from app.core.zones import read_zone

MOST_WINDOWS: Final = 8
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = 24 * 60
_WEEK: Final = 7 * _DAY
_MINUTE_US: Final = 60_000_000
_CHANGE: Final = 240
"""Clocks are put forward and back by less than so many minutes."""
_LOOKED: Final = 15 * _DAY
"""A window that does not open within so many minutes never does."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00", re.ASCII)
_ALLOWED_DAYS: Final = f'allowed: {", ".join(DAYS)}, and lists of them and ranges, such as "mon-fri" or "tue,sat"'


@dataclass(frozen=True, slots=True)
class RunWindow:
    """A time of some days of the week. One that ends before it begins goes over midnight, into the day behind.

    `begin` and `end` are in minutes from midnight.
    """

    days: frozenset[int]
    begin: int
    end: int
    zone: str
    said: Mapping[str, str]
    """The members of the window as a caller wrote them."""

    @property
    def length(self) -> timedelta:
        """The time for which it is open, if no clock changes."""
        return timedelta(minutes=(self.end - self.begin - 1) % _DAY + 1)

    def is_open(self, at: int) -> bool:
        """Return whether an instant is in it."""
        return self._until(at, opens=False) != 0

    def _wall(self, at: int) -> datetime:
        return (_EPOCH + timedelta(microseconds=at)).astimezone(read_zone("zone", self.zone))

    def _until(self, at: int, *, opens: bool) -> int:
        """The minutes on the wall until it opens or closes; 0 where it is so."""
        now = self._wall(at)
        minute = now.weekday() * _DAY + now.hour * 60 + now.minute
        size = self.length // timedelta(minutes=1)
        past = [(minute - day * _DAY - self.begin) % _WEEK for day in self.days]
        if opens:
            return 0 if min(past) < size else _WEEK - max(past)
        return max((size - one for one in past if one < size), default=0)

    def next_change(self, at: int) -> int | None:
        """Return the first whole minute behind an instant at which it opens, or closes if it is open; None if never."""
        opens = not self.is_open(at)
        found = at - at % _MINUTE_US
        for _ in range(_LOOKED):
            left = self._until(found, opens=opens)
            if left == 0:
                return found
            found += _MINUTE_US * self._passed_over(found, left)
            if found - at > _LOOKED * _MINUTE_US:
                break
        return None

    def _passed_over(self, at: int, left: int) -> int:
        """Return how many minutes need no look, of those that are left until it opens or closes on the wall.

        All of them where no clock changes within them: there are no two changes within a day.
        """
        day = min(left, _DAY)
        if self._wall(at).utcoffset() == self._wall(at + day * _MINUTE_US).utcoffset():
            return day
        return left - _CHANGE if left > _CHANGE else 1


def is_open(windows: Sequence[RunWindow], at: int) -> bool:
    """Return whether an instant is in one of the windows; it always is where there are none."""
    return not windows or any(one.is_open(at) for one in windows)


def opens_at(windows: Sequence[RunWindow], at: int) -> int | None:
    """Return the instant at which the first of the closed windows opens."""
    return min((one for window in windows if (one := window.next_change(at)) is not None), default=None)


def closes_at(windows: Sequence[RunWindow], at: int) -> int | None:
    """Return the instant from which no window is open; None where none closes within two weeks, or there are none."""
    found = at
    while found - at < _LOOKED * _MINUTE_US:
        ends = [window.next_change(found) for window in windows if window.is_open(found)]
        if not ends:
            return found if windows else None
        if None in ends:
            return None
        found = max(one for one in ends if one is not None)
    return None


def read_windows(value: object) -> tuple[RunWindow, ...]:
    """Return the windows that a caller asks for; InvalidInputError."""
    entries = list_of("windows", value, MOST_WINDOWS)
    return tuple(_window(f"windows.{index}", one) for index, one in enumerate(entries))


def check_windows(windows: Sequence[RunWindow], timeout: timedelta) -> None:
    """InvalidInputError where a command takes longer than a window is open."""
    for index, one in enumerate(windows):
        if one.length < timeout:
            raise InvalidInputError(
                f"windows.{index}",
                f"is open for {one.length}, and the command has a timeout of {timeout}; it must be open for as long",
            )


def _window(field: str, value: object) -> RunWindow:
    members = members_of(field, value, ("days", "from", "to", "zone"))
    texts = {name: _text(f"{field}.{name}", name, members) for name in ("from", "to", "zone")}
    said = members.get("days", "mon-sun")
    begin, end = _time(f"{field}.from", texts["from"]), _time(f"{field}.to", texts["to"])
    if begin in (end, _DAY):
        raise InvalidInputError(
            f"{field}.to", f"{texts['from']} to {texts['to']} is no time; all day is 00:00 to 24:00"
        )
    read_zone(f"{field}.zone", texts["zone"])
    return RunWindow(_days(f"{field}.days", said), begin, end, texts["zone"], {"days": said, **texts})


def _text(field: str, name: str, members: Mapping[str, Any]) -> str:
    value = members.get(name, "UTC" if name == "zone" else None)
    if not isinstance(value, str):
        said = "is missing" if value is None else f"is {kind_in_words(value)}"
        raise InvalidInputError(field, f"{said}; {_NEEDED[name]}")
    return value


_NEEDED: Final = {
    "from": 'a time of day such as "02:00" is needed',
    "to": 'a time of day such as "05:00" is needed',
    "zone": 'the name of a time zone such as "Europe/Berlin" is needed',
}


def _time(field: str, text: str) -> int:
    if (found := _TIME.fullmatch(text)) is None:
        raise InvalidInputError(field, f"{text[:32]!a} is no time of day; allowed: 00:00 to 24:00")
    return _DAY if found[1] is None else int(found[1]) * 60 + int(found[2])


def _days(field: str, value: object) -> frozenset[int]:
    if not isinstance(value, str):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; {_ALLOWED_DAYS}")
    found: set[int] = set()
    for part in value.split(","):
        first, dash, last = part.strip().partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise InvalidInputError(field, f"{value[:64]!a} names no days; {_ALLOWED_DAYS}")
        begin = DAYS.index(first)
        count = (DAYS.index(last) - begin) % len(DAYS) if dash else 0
        found |= {(begin + number) % len(DAYS) for number in range(count + 1)}
    return frozenset(found)
