"""Counts of commands, and how long they took, in the last hour: by minute, and by method."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

MINUTES: Final = 60
BOUNDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.35, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Upper bounds of buckets in seconds. What took longer counts as the last of them."""
_LAST: Final = len(BOUNDS) - 1


class MethodName(NamedTuple):
    """A method of a profile."""

    profile: str
    name: str


class TallyNumbers(NamedTuple):
    """A tally in numbers: `timeout` and the quantiles are in seconds, None where no time is known."""

    begun: int
    ended: Mapping[str, int]
    timeout: float
    p50: float | None
    p95: float | None
    p99: float | None


class CommandTally:
    """Commands that have begun and ended; `timeout` is the longest one, in seconds."""

    __slots__ = ("begun", "buckets", "ended", "timeout")

    def __init__(self) -> None:
        self.begun = 0
        self.ended: Counter[str] = Counter()
        """The number that ended, by outcome."""
        self.timeout = 0.0
        self.buckets: Counter[int] = Counter()
        """The number of those whose time is known, by bucket."""

    def end(self, outcome: str, seconds: float | None, timeout: float) -> None:
        """Count one that has ended; `seconds` is how long it took, if that is known."""
        self.ended[outcome] += 1
        self.timeout = max(self.timeout, timeout)
        if seconds is not None:
            self.buckets[bisect_left(BOUNDS, seconds, 0, _LAST)] += 1

    def add(self, other: CommandTally) -> None:
        """Count those of another one as well."""
        self.begun += other.begun
        self.ended.update(other.ended)
        self.buckets.update(other.buckets)
        self.timeout = max(self.timeout, other.timeout)

    def quantile(self, share: float) -> float | None:
        """The seconds that this share of them did not exceed, by interpolation in a bucket; None if none is known."""
        wanted, seen = share * self.buckets.total(), 0
        for number, (lower, upper) in enumerate(pairwise((0.0, *BOUNDS))):
            count = self.buckets[number]
            if count and seen + count >= wanted:
                return lower + (upper - lower) * (wanted - seen) / count
            seen += count
        return None

    def numbers(self) -> TallyNumbers:
        """Return what people want to know of it."""
        quantiles = (self.quantile(0.5), self.quantile(0.95), self.quantile(0.99))
        return TallyNumbers(self.begun, self.ended, self.timeout, *quantiles)

    def told(self) -> Sequence[Any]:
        """Return it as another node is told, in JSON."""
        return self.begun, self.ended, {str(number): count for number, count in self.buckets.items()}, self.timeout

    @classmethod
    def of(cls, said: Sequence[Any]) -> Self:
        """Return what another node told; ValueError, TypeError or KeyError for anything else."""
        begun, ended, buckets, timeout = said
        found = cls()
        found.begun, found.timeout = int(begun), float(timeout)
        found.ended = Counter({str(outcome): int(count) for outcome, count in dict(ended).items()})
        found.buckets = Counter({int(number): int(count) for number, count in dict(buckets).items()})
        return found


class LastHour(NamedTuple):
    """The tallies of the last hour; minutes are counted from 1970."""

    minutes: Mapping[int, CommandTally]
    methods: Mapping[MethodName, CommandTally]

    def told(self) -> Mapping[str, Any]:
        """Return it as another node is told, in JSON."""
        return {
            "minutes": [(minute, *one.told()) for minute, one in self.minutes.items()],
            "methods": [(*method, *one.told()) for method, one in self.methods.items()],
        }

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """Return what another node told; ValueError, TypeError or KeyError for anything else."""
        return cls(
            {int(minute): CommandTally.of(one) for minute, *one in said["minutes"]},
            {MethodName(str(profile), str(name)): CommandTally.of(one) for profile, name, *one in said["methods"]},
        )


NOTHING: Final = LastHour({}, {})


class HourNumbers(NamedTuple):
    """The last hour of a cluster in numbers; minutes are counted from 1970."""

    total: TallyNumbers
    minutes: Mapping[int, TallyNumbers]
    methods: Mapping[MethodName, TallyNumbers]


def together(told: Sequence[LastHour], now: int, most_methods: int) -> HourNumbers:
    """The sum of what several nodes know: the hour before the minute `now`, and the methods with most commands."""
    total, minutes = CommandTally(), dict[int, CommandTally]()
    for each in told:
        for minute, one in each.minutes.items():
            if now - MINUTES < minute <= now:
                minutes.setdefault(minute, CommandTally()).add(one)
                total.add(one)
    methods = busiest((one.methods for one in told), most_methods)
    return HourNumbers(
        total.numbers(),
        {minute: one.numbers() for minute, one in sorted(minutes.items())},
        {method: one.numbers() for method, one in methods.items()},
    )


def busiest(told: Iterable[Mapping[MethodName, CommandTally]], most: int) -> dict[MethodName, CommandTally]:
    """The methods with most commands, and the sums of their tallies."""
    found: dict[MethodName, CommandTally] = {}
    for each in told:
        for method, one in each.items():
            found.setdefault(method, CommandTally()).add(one)
    return dict(sorted(found.items(), key=lambda one: one[1].ended.total(), reverse=True)[:most])
