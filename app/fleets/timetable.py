"""Timetables: cron expressions in time zones. The one place that knows the cron library.

It follows Debian's cron when clocks change: a time that does not exist runs right after the gap, one that exists twice
runs once. Expressions whose minutes or hours begin with a star go by the time that passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from cronsim import CronSim, CronSimError

from app.core.errors import InvalidInputError
from app.core.zones import read_zone

FIELDS: Final = 5
LONGEST: Final = 200
_LETTERS: Final = re.compile(r"[0-9A-Za-z*,/# -]*", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ALLOWED: Final = (
    "allowed: five fields (minute, hour, day of month, month, day of week) with numbers, names of months and days, "
    'and * , - / L #, such as "30 2 * * mon"'
)


class Timetable:
    """The instants of a cron expression in a time zone; InvalidInputError about `cron` or `zone`."""

    def __init__(self, cron: str, zone: str) -> None:
        self._zone = read_zone("zone", zone)
        self._cron = cron
        if len(cron) > LONGEST or _LETTERS.fullmatch(cron) is None or len(cron.split()) != FIELDS:
            raise InvalidInputError("cron", f"{cron[:64]!a} is none; {_ALLOWED}")
        try:
            first = next(CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC)), None)
        except CronSimError as error:
            said = str(error)
            raise InvalidInputError("cron", f"{cron[:64]!a}: {said[:1].lower()}{said[1:]}; {_ALLOWED}") from None
        if first is None:
            raise InvalidInputError("cron", f"{cron[:64]!a} means no instant within 50 years; {_ALLOWED}")

    def after(self, instant: int) -> Iterator[int]:
        """Yield its instants (µs) behind this one, each once and in their order."""
        last = instant
        for found in CronSim(self._cron, (_EPOCH + timedelta(microseconds=instant)).astimezone(self._zone)):
            at = (found - _EPOCH) // _MICROSECOND
            # In the hour that exists twice the library finds the first one again, and in a gap one instant twice.
            if at > last:
                last = at
                yield at
