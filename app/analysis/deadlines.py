"""Learned deadlines: what timeout each method, and each group of devices within it, should have. Pure arithmetic.

How long a command takes is from its registration to its response on record, both store time: what its deadline is
compared with. A command that timed out is censored at its deadline; when its response came late, the late record tells
how long it really took, and it counts with that. One that was never answered has no such time at all: it is left out of
the quantile and counted beside it, as no timeout, however long, would have helped it.

The timeout of a method is the quantile of these times, plus a margin. That of a group of devices is drawn towards its
method's on the scale of logarithms: `ln q = z ln q(group) + (1 - z) ln q(method)`, with Bühlmann's credibility weight
z = n / (n + k) ("Experience Rating and Credibility", ASTIN Bulletin 4, 1967). k is the number of records of which
TAIL_FOR_HALF are expected beyond the quantile.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Final, NamedTuple

from app.analysis.buckets import ends_of
from app.core.deadlines import NO_GROUP
from app.core.errors import ConfigurationError

TAIL_FOR_HALF: Final = 10
"""Records expected beyond a group's quantile with which the group counts half."""
MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class DeadlineOptions:
    """How timeouts are learned."""

    quantile: float = 0.999
    margin: float = 0.25
    """What is added to the quantile, as a share of it."""
    least_records: int | None = None
    """Responses that a method or group must have; None is 1 / (1 - quantile): with fewer it would be the longest."""
    shortest: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(hours=1)
    held_out: float = 0.2
    """Share of the hours, the latest, on which the back-test judges what was learned from the others."""

    @property
    def least(self) -> int:
        """See least_records."""
        return self.least_records or math.ceil(round(1 / (1 - self.quantile), 6))

    @property
    def half(self) -> float:
        """Records with which a group counts half."""
        return TAIL_FOR_HALF / (1 - self.quantile)

    def as_json(self) -> dict[str, Any]:
        """For summary.json; durations in seconds."""
        return {
            "quantile": self.quantile,
            "margin": self.margin,
            "least_responses": self.least,
            "shortest_s": self.shortest.total_seconds(),
            "longest_s": self.longest.total_seconds(),
            "held_out": self.held_out,
        }

    def check(self) -> None:
        """ConfigurationError names the option that is wrong and what is allowed."""
        for name, value, low, high in (
            ("--timeout-quantile", self.quantile, 0.5, 0.99999),
            ("--timeout-margin", self.margin, 0.0, 10.0),
            ("--held-out", self.held_out, 0.0, 0.9),
        ):
            if not low <= value <= high:
                raise ConfigurationError(f"{name} is {value:g}; allowed: {low:g} to {high:g}")
        if self.least_records is not None and self.least_records < 1:
            raise ConfigurationError(f"--timeout-sample is {self.least_records}; allowed: 1 or more")
        if not timedelta(milliseconds=1) <= self.shortest <= self.longest <= timedelta(days=30):
            raise ConfigurationError("--timeout-min, --timeout-max: allowed: 1ms to 720h, in this order")


def cut_of(first: datetime, last: datetime, held_out: float) -> datetime:
    """Where the held-out hours begin: `first` and `last` are the begins of the first and last hour of the log."""
    hours = round((last - first) / timedelta(hours=1)) + 1
    kept_back = min(hours - 1, max(1, round(hours * held_out))) if held_out else 0
    return first + timedelta(hours=hours - kept_back)


class End(IntEnum):
    """How a command ended, as far as its time is concerned."""

    ANSWERED = 0
    LATE = 1
    """Timed out; the response came after all."""
    NEVER = 2
    """Timed out; no response on record. `bucket` and `sum_us` of the cell are null and 0."""
    CANCELLED = 3
    """Cancelled; the response came after all. Tells how long it took, but not how long anybody would have waited."""


class Cell(NamedTuple):
    """Commands that are alike: counted by Spark, the rest is arithmetic."""

    profile: str
    method: str
    group: str
    end: int
    held_out: bool
    known_late: bool
    """The late response came in the held-out hours: in the others nobody knew of it."""
    bucket: int | None
    """Of the time it took, as in app/analysis/buckets.py."""
    commands: int
    sum_us: int
    """Of the time they took."""
    timeout_us: int
    """Sum of the timeouts that they had; 0 for answered ones."""


@dataclass(slots=True)
class Sample:
    """The commands of a method, or of a group within it."""

    histogram: dict[int, int]
    answered: int = 0
    late: int = 0
    never: int = 0
    timeout_us: int = 0
    """Sum of the timeouts that those had who timed out."""

    @property
    def responses(self) -> int:
        """Commands whose true time is known."""
        return sum(self.histogram.values())

    def quantile_us(self, quantile: float) -> int | None:
        """The upper end of the bucket of the nearest rank: at most 2 % over the exact one, and never under."""
        rank = math.ceil(round(self.responses * quantile, 6))
        for bucket, count in sorted(self.histogram.items()):
            rank -= count
            if rank <= 0:
                return max(1, ends_of(bucket)[1] - 1)
        return None


Key = tuple[str, str, str]
"""Profile, method, and group; NO_GROUP is the whole method."""


def samples(cells: Iterable[Cell], *, training: bool) -> dict[Key, Sample]:
    """Add cells up for each group and each method. `training`: only what was known before the held-out hours."""
    found: dict[Key, Sample] = defaultdict(lambda: Sample({}))
    for cell in cells:
        if training and cell.held_out:
            continue
        end = cell.end
        if training and cell.known_late:
            if end == End.CANCELLED:
                continue
            end = End.NEVER
        for group in {cell.group, NO_GROUP}:
            _add(found[cell.profile, cell.method, group], cell, end)
    return dict(found)


def _add(sample: Sample, cell: Cell, end: int) -> None:
    match end:
        case End.NEVER:
            sample.never += cell.commands
        case End.LATE:
            sample.late += cell.commands
        case End.ANSWERED:
            sample.answered += cell.commands
    if end != End.CANCELLED:
        sample.timeout_us += cell.timeout_us
    if end != End.NEVER and cell.bucket is not None:
        sample.histogram[cell.bucket] = sample.histogram.get(cell.bucket, 0) + cell.commands


def recommend(found: dict[Key, Sample], options: DeadlineOptions) -> list[dict[str, Any]]:
    """Rows of the table `deadlines`, in the order of their keys."""
    rows = []
    for (profile, method, group), sample in sorted(found.items()):
        whole = found[profile, method, NO_GROUP].quantile_us(options.quantile)
        own = sample.quantile_us(options.quantile)
        timed_out = sample.late + sample.never
        finished = sample.answered + timed_out
        row: dict[str, Any] = {
            "profile": profile,
            "method": method,
            "device_group": group or None,
            "responses": sample.responses,
            "late": sample.late,
            "never_answered": sample.never,
            "never_answered_share": sample.never / finished if finished else 0.0,
            "quantile_us": own,
            "weight": 1.0,
            "shrunk_us": own,
            "timeout_us": None,
            "logged_timeout_us": round(sample.timeout_us / timed_out) if timed_out else None,
            "why_not": None,
        }
        if sample.responses < options.least or own is None or whole is None:
            row["why_not"] = f"{sample.responses} responses; at least {options.least} are needed"
        else:
            if group:
                row["weight"] = weight = sample.responses / (sample.responses + options.half)
                row["shrunk_us"] = round(math.exp(weight * math.log(own) + (1 - weight) * math.log(whole)))
            row["timeout_us"] = _timeout_us(row["shrunk_us"], options)
        rows.append(row)
    return rows


def _timeout_us(quantile_us: int, options: DeadlineOptions) -> int:
    """With the margin, rounded up to three digits and whole milliseconds, within the bounds."""
    wanted = math.ceil(round(quantile_us * (1 + options.margin) / 1000, 6))
    step: int = 10 ** max(0, len(str(wanted)) - 3)
    micros = -(-wanted // step) * step * 1000
    low, high = (round(one / timedelta(microseconds=1)) for one in (options.shortest, options.longest))
    return min(max(micros, low), high)


def timeouts_of(rows: Iterable[dict[str, Any]]) -> dict[Key, int]:
    """The timeouts of a table, in microseconds."""
    return {
        (row["profile"], row["method"], row["device_group"] or NO_GROUP): row["timeout_us"]
        for row in rows
        if row["timeout_us"] is not None
    }


def back_test(cells: Iterable[Cell], timeouts: dict[Key, int]) -> list[dict[str, Any]]:
    """Rows of the table `deadlines_test`: the held-out commands, had they had these timeouts.

    A response in the bucket that its timeout falls into counts as too late: the share is an upper bound, within 2 %
    of the timeout.
    """
    tested: dict[tuple[str | None, str | None], _Tested] = defaultdict(_Tested)
    for cell in cells:
        if not cell.held_out or cell.end == End.CANCELLED:
            continue
        of_method = timeouts.get((cell.profile, cell.method, NO_GROUP))
        timeout = timeouts.get((cell.profile, cell.method, cell.group), of_method)
        for key in ((cell.profile, cell.method), (None, None)):
            tested[key].add(cell, timeout)
    order = sorted(tested.items(), key=lambda item: (item[0][0] or "", item[0][1] or ""))
    return [{"profile": key[0], "method": key[1], **one.row()} for key, one in order]


@dataclass(slots=True)
class _Tested:
    commands: int = 0
    without: int = 0
    responses: int = 0
    wrong: int = 0
    wrong_logged: int = 0
    waited_us: int = 0
    waited_logged_us: int = 0

    def add(self, cell: Cell, timeout: int | None) -> None:
        """`timeout` None: nothing was learned for it."""
        if timeout is None:
            self.without += cell.commands
            return
        self.commands += cell.commands
        self.waited_logged_us += cell.sum_us if cell.end == End.ANSWERED else cell.timeout_us
        if cell.end == End.NEVER or cell.bucket is None:
            self.waited_us += timeout * cell.commands
            return
        self.responses += cell.commands
        self.wrong_logged += cell.commands if cell.end == End.LATE else 0
        too_late = timeout < ends_of(cell.bucket)[1]
        self.wrong += cell.commands if too_late else 0
        self.waited_us += min(timeout * cell.commands, cell.sum_us)

    def row(self) -> dict[str, Any]:
        saved = self.waited_logged_us - self.waited_us
        return {
            "commands": self.commands,
            "without": self.without,
            "responses": self.responses,
            "wrong": self.wrong,
            "wrong_share": self.wrong / self.responses if self.responses else 0.0,
            "wrong_logged": self.wrong_logged,
            "wrong_logged_share": self.wrong_logged / self.responses if self.responses else 0.0,
            "waited_s": self.waited_us / MICROS,
            "waited_logged_s": self.waited_logged_us / MICROS,
            "saved_s": saved / MICROS,
            "saved_share": saved / self.waited_logged_us if self.waited_logged_us else 0.0,
        }
