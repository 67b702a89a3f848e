"""The specification of a fleet run: its waves, its stop rules and its bounds, as they are asked for and kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil
from typing import Any, Final

from app.core.durations import format_duration, parse_duration
from app.core.errors import InvalidInputError
from app.core.fleets.fields import in_short, list_of, members_of, number_of, percent_of, read_length
from app.core.fleets.hand_rate import HandRate, read_rate
from app.core.fleets.marks import TargetMark
from app.core.fleets.quorum import LabelBudget, RunGoal, read_budgets, read_goal, read_label
from app.core.fleets.targets import MOST_TARGETS
from app.core.fleets.windows import RunWindow, closes_at, read_windows

MOST_WAVES: Final = 20
MOST_GROWN: Final = 500
"""The number of waves that growing ones may become."""
MOST_GROWTH: Final = 10
MOST_RULES: Final = 8
MOST_IN_FLIGHT: Final = 5_000
USUAL_IN_FLIGHT: Final = 100
USUAL_AFTER: Final = 20
LONGEST_RUN: Final = timedelta(days=30)
USUAL_LENGTH: Final = timedelta(hours=72)
REST: Final = "rest"
GO_ON, WAIT, APPROVE = "", "wait", "approve"
STOPPABLE: Final = tuple(
    one.word for one in TargetMark if one.ended and one not in (TargetMark.SUCCEEDED, TargetMark.SKIPPED)
)
"""The ways in which a target may end that stop rules count."""
USUAL_OF: Final = (TargetMark.FAILED.word, TargetMark.TIMED_OUT.word)

_SIZES: Final = f'a number of devices, a share such as "10%", or "{REST}" for the last wave'


@dataclass(frozen=True, slots=True)
class WaveGrowth:
    """Waves of which each is `factor` times as large as the one before it, and none larger than `most`."""

    first: int
    factor: float
    most: int | None = None

    def sizes(self, left: int) -> Iterator[int]:
        """Yield the numbers of targets of the waves, for so many targets."""
        size = float(self.first)
        while left > 0:
            found = min(left, round(size), left if self.most is None else self.most)
            yield found
            left, size = left - found, min(size * self.factor, float(left))

    def to_json(self) -> dict[str, Any]:
        """The growth as it is kept and shown."""
        return {
            "first": self.first,
            "factor": self.factor,
            **({} if self.most is None else {"most": self.most}),
        }


@dataclass(frozen=True, slots=True)
class WaveSpec:
    """A wave as it is asked for, or many that grow. None of `count`, `share` (in percent), `growth`: all left."""

    count: int | None = None
    share: float | None = None
    bake: timedelta = timedelta()
    """The time that passes after its last target has ended, before the next wave begins."""
    then: str = GO_ON
    """WAIT if a person has to resume the run before the next wave, APPROVE if that is another one than began it."""
    growth: WaveGrowth | None = None

    def sizes(self, total: int, left: int) -> Iterable[int]:
        """The numbers of its targets, of so many in the run, of which so many are in no wave before it."""
        if self.growth is not None:
            return self.growth.sizes(left)
        if self.count is not None:
            return (min(self.count, left),)
        if self.share is not None:
            return (min(max(1, ceil(total * self.share / 100 - 1e-9)), left),)
        return (left,)

    def to_json(self) -> dict[str, Any]:
        """The wave as it is kept and shown."""
        size = self.count if self.count is not None else REST if self.share is None else f"{self.share:g}%"
        sizes = {"size": size} if self.growth is None else self.growth.to_json()
        bake = {"bake": format_duration(self.bake)} if self.bake else {}
        return {**sizes, **bake, **({"then": self.then} if self.then else {})}


@dataclass(frozen=True, slots=True)
class StopRule:
    """Stops the run by how targets have ended: by a share (in percent) of those that ended, or by their number."""

    of: tuple[str, ...]
    share: float | None
    count: int | None
    after: int | None
    """A share is judged when so many targets have ended, or all; None is USUAL_AFTER, or the first wave if smaller."""
    aborts: bool

    def fault(self, counts: Mapping[str, int], ended: int, total: int, first_wave: int) -> str | None:
        """Say in a sentence why the run has to stop; None while it may go on. `ended` are all those that have ended."""
        bad = sum(counts.get(word, 0) for word in self.of)
        named = " or ".join(self.of)
        if self.count is not None:
            return f"{bad} targets are {named}; the rule stops at {self.count}" if bad >= self.count else None
        least = min(USUAL_AFTER, first_wave) if self.after is None else min(self.after, total)
        if self.share is None or not bad or ended < least or bad * 100 < self.share * ended:
            return None
        return (
            f"{bad} of {ended} targets that ended are {named}, which is {bad * 100 / ended:.3g}%; "
            f"the rule stops at {self.share:g}%"
        )

    def to_json(self) -> dict[str, Any]:
        """The rule as it is kept and shown."""
        bound = {"count": self.count} if self.share is None else {"share": f"{self.share:g}%"}
        after = {} if self.after is None else {"after": self.after}
        return {"of": list(self.of), **bound, **after, "then": "abort" if self.aborts else "pause"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """All that a run goes by, apart from its command and its targets. Instants are in microseconds."""

    waves: tuple[WaveSpec, ...]
    stop: tuple[StopRule, ...]
    in_flight: int
    hold: timedelta
    """The time for which a target may be away, from when its turn comes."""
    start_at: int
    until: int
    windows: tuple[RunWindow, ...] = ()
    """The times of days in which something is handed out; at all times where there are none."""
    spread: str = ""
    """The label whose values take turns in the order of targets; empty where none does."""
    per: tuple[LabelBudget, ...] = ()
    goal: RunGoal | None = None
    rate: HandRate | None = None
    """The most targets that get their turn in a time; as many as are ready where there is none."""

    def wave_ends(self, total: int) -> list[int]:
        """Return of each wave the index behind its last target. The last wave has all that are left.

        InvalidInputError where they grow too slowly for so many targets.
        """
        ends: list[int] = []
        for index, wave in enumerate((*self.waves, WaveSpec())):
            if ends and ends[-1] >= total:
                break
            for size in wave.sizes(total, total - (ends[-1] if ends else 0)):
                ends.append((ends[-1] if ends else 0) + size)
                if len(ends) > MOST_WAVES + MOST_GROWN:
                    sentence = f"grows too slowly: {total} targets become more than {MOST_GROWN} waves"
                    raise InvalidInputError(f"waves.{index}", f"{sentence}; a larger factor or most is needed")
        return ends

    def longest_hold(self, now: int) -> timedelta:
        """Return for how long a command that is registered now may be held: no longer than its window is open."""
        closes = closes_at(self.windows, now)
        return self.hold if closes is None else min(self.hold, timedelta(microseconds=max(0, closes - now)))

    def again(self, now: int) -> RunSpec:
        """The same for a run that begins now, and may last as long."""
        return replace(self, start_at=now, until=now + self.until - self.start_at)

    @property
    def needs_approval(self) -> bool:
        """True if a second person has to approve a wave."""
        return any(one.then == APPROVE for one in self.waves)

    def wave(self, index: int) -> WaveSpec:
        """The wave with this index; behind all that were asked for, one that grows goes on, or one has the rest."""
        if index < len(self.waves):
            return self.waves[index]
        return self.waves[-1] if self.waves and self.waves[-1].growth is not None else WaveSpec()

    def to_json(self) -> dict[str, Any]:
        """The specification as it is kept."""
        return {
            "waves": [one.to_json() for one in self.waves],
            "stop": [one.to_json() for one in self.stop],
            "in_flight": self.in_flight,
            "hold": format_duration(self.hold),
            "start_at": self.start_at,
            "until": self.until,
            **self.further(),
        }

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels that it goes by, each with the member that names it."""
        return {**({self.spread: "spread"} if self.spread else {}), **{one.label: "per" for one in self.per}}

    def further(self) -> dict[str, Any]:
        """The members that not every run has, as they are kept and shown."""
        return {
            **({"windows": [dict(one.said) for one in self.windows]} if self.windows else {}),
            **({"spread": self.spread} if self.spread else {}),
            **({"per": [one.to_json() for one in self.per]} if self.per else {}),
            **({"done": self.goal.to_json()} if self.goal is not None else {}),
            **({"rate": self.rate.said} if self.rate is not None else {}),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> RunSpec:
        """The specification that `to_json` wrote."""
        return cls(
            waves=read_waves(kept["waves"]),
            stop=read_rules(kept["stop"]),
            in_flight=kept["in_flight"],
            hold=parse_duration(kept["hold"]),
            start_at=kept["start_at"],
            until=kept["until"],
            **read_further(kept),
        )


def read_further(members: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a specification that not every run has, as a caller asks for them; InvalidInputError."""
    readers = {
        "windows": ("windows", read_windows),
        "spread": ("spread", lambda value: read_label("spread", value)),
        "per": ("per", read_budgets),
        "done": ("goal", read_goal),
        "rate": ("rate", read_rate),
    }
    return {field: read(members[name]) for name, (field, read) in readers.items() if name in members}


def read_waves(value: object) -> tuple[WaveSpec, ...]:
    """The waves that a caller asks for; InvalidInputError."""
    entries = list_of("waves", value, MOST_WAVES)
    waves = tuple(_wave(f"waves.{index}", one) for index, one in enumerate(entries))
    for index, one in enumerate(waves[:-1]):
        if one.growth is not None:
            raise InvalidInputError(
                f"waves.{index}", f"grows, so it is the last one; {len(waves) - index - 1} follow it"
            )
        if one.count is None and one.share is None:
            raise InvalidInputError(f"waves.{index}", f'"{REST}" is the last wave; {len(waves) - index - 1} follow it')
    return waves


def read_rules(value: object) -> tuple[StopRule, ...]:
    """The stop rules that a caller asks for; InvalidInputError."""
    return tuple(_rule(f"stop.{index}", one) for index, one in enumerate(list_of("stop", value, MOST_RULES)))


def read_in_flight(value: object) -> int:
    """The number of targets that may be in flight at once; InvalidInputError."""
    return number_of("in_flight", value, 1, MOST_IN_FLIGHT)


def _wave(field: str, value: object) -> WaveSpec:
    if not isinstance(value, dict):
        count, share = _size(field, value)
        return WaveSpec(count, share)
    growth = None
    if "first" in value or "factor" in value:
        members = members_of(field, value, ("first", "factor", "most", "bake", "then"))
        (count, share), growth = (None, None), _growth(field, members)
    else:
        members = members_of(field, value, ("size", "bake", "then"))
        if "size" not in members:
            raise InvalidInputError(f"{field}.size", f"is missing; allowed: {_SIZES}")
        count, share = _size(f"{field}.size", members["size"])
    bake = read_length(f"{field}.bake", members["bake"], LONGEST_RUN, timedelta()) if "bake" in members else timedelta()
    then = members.get("then", GO_ON)
    if then not in (GO_ON, WAIT, APPROVE) or ("then" in members and then == GO_ON):
        raise InvalidInputError(
            f"{field}.then",
            f'{in_short(then)} is none; allowed: "{WAIT}", until a person resumes the run, and "{APPROVE}", until '
            "another person than the one who began it does",
        )
    return WaveSpec(count, share, bake, then, growth)


def _growth(field: str, members: Mapping[str, Any]) -> WaveGrowth:
    for name in ("first", "factor"):
        if name not in members:
            raise InvalidInputError(f"{field}.{name}", 'is missing; waves that grow have "first" and "factor"')
    first = number_of(f"{field}.first", members["first"], 1, MOST_TARGETS)
    factor = members["factor"]
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 < factor <= MOST_GROWTH:
        raise InvalidInputError(
            f"{field}.factor", f"{in_short(factor)} is none; allowed: a number above 1 and up to {MOST_GROWTH}"
        )
    most = number_of(f"{field}.most", members["most"], first, MOST_TARGETS) if "most" in members else None
    return WaveGrowth(first, factor, most)


def _size(field: str, value: object) -> tuple[int | None, float | None]:
    if value == REST:
        return None, None
    if isinstance(value, str):
        return None, percent_of(field, value, _SIZES)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value, None
    raise InvalidInputError(field, f"{in_short(value)} is none; allowed: {_SIZES}")


def _rule(field: str, value: object) -> StopRule:
    members = members_of(field, value, ("of", "share", "count", "after", "then"))
    of = list_of(f"{field}.of", members.get("of", list(USUAL_OF)), len(STOPPABLE))
    for one in of:
        if one not in STOPPABLE:
            raise InvalidInputError(f"{field}.of", f"{in_short(one)} is none; allowed: {', '.join(STOPPABLE)}")
    if not of:
        raise InvalidInputError(f"{field}.of", f"is empty; allowed: {', '.join(STOPPABLE)}")
    each = tuple(dict.fromkeys(of))  # one that is named twice counts once
    if ("share" in members) == ("count" in members):
        raise InvalidInputError(field, 'needs either "share", such as "5%", or "count"')
    then = members.get("then", "pause")
    if then not in ("pause", "abort"):
        raise InvalidInputError(f"{field}.then", f"{in_short(then)} is none; allowed: pause, abort")
    if "count" in members:
        if "after" in members:
            raise InvalidInputError(f"{field}.after", 'is of rules with "share"; this one has "count"')
        count = number_of(f"{field}.count", members["count"], 1, 1_000_000)
        return StopRule(each, None, count, None, aborts=then == "abort")
    share = percent_of(f"{field}.share", members["share"], 'a share such as "5%", above 0% and up to 100%')
    after = number_of(f"{field}.after", members["after"], 1, 1_000_000) if "after" in members else None
    return StopRule(each, share, None, after, aborts=then == "abort")
