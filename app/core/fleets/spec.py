"""The specification of a fleet run: its waves, its stop rules and its bounds, as they are asked for and kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil
from typing import Any, Final

from app.core.characters import shown
from app.core.durations import format_duration, parse_duration
from app.core.errors import InvalidInputError
from app.core.fleets.marks import TargetMark
from app.core.payload import kind_in_words

MOST_WAVES: Final = 20
MOST_RULES: Final = 8
MOST_IN_FLIGHT: Final = 5_000
USUAL_IN_FLIGHT: Final = 100
USUAL_AFTER: Final = 20
LONGEST_RUN: Final = timedelta(days=30)
USUAL_LENGTH: Final = timedelta(hours=72)
SHORTEST: Final = timedelta(seconds=1)
REST: Final = "rest"
STOPPABLE: Final = tuple(
    one.word for one in TargetMark if one.ended and one not in (TargetMark.SUCCEEDED, TargetMark.SKIPPED)
)
"""The ways in which a target may end that stop rules count."""
USUAL_OF: Final = (TargetMark.FAILED.word, TargetMark.TIMED_OUT.word)

_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%", re.ASCII)
_SIZES: Final = f'a number of devices, a share such as "10%", or "{REST}" for the last wave'


@dataclass(frozen=True, slots=True)
class WaveSpec:
    """A wave as it is asked for. Neither `count` nor `share` (in percent): all that are left."""

    count: int | None = None
    share: float | None = None
    bake: timedelta = timedelta()
    """The time that passes after its last target has ended, before the next wave begins."""
    waits: bool = False
    """True if a person has to resume the run before the next wave."""

    def size(self, total: int, left: int) -> int:
        """The number of its targets, of so many in the run, of which so many are in no wave before it."""
        if self.count is not None:
            return min(self.count, left)
        if self.share is not None:
            return min(max(1, ceil(total * self.share / 100 - 1e-9)), left)
        return left

    def to_json(self) -> dict[str, Any]:
        """The wave as it is kept and shown."""
        size = self.count if self.count is not None else REST if self.share is None else f"{self.share:g}%"
        bake = {"bake": format_duration(self.bake)} if self.bake else {}
        return {"size": size, **bake, **({"then": "wait"} if self.waits else {})}


@dataclass(frozen=True, slots=True)
class StopRule:
    """Stops the run by how targets have ended: by a share (in percent) of those that ended, or by their number."""

    of: tuple[str, ...]
    share: float | None
    count: int | None
    after: int
    """A share is judged when so many targets have ended, or all of them."""
    aborts: bool

    def fault(self, counts: Mapping[str, int], ended: int, total: int) -> str | None:
        """Say in a sentence why the run has to stop; None while it may go on. `ended` are all those that have ended."""
        bad = sum(counts.get(word, 0) for word in self.of)
        named = " or ".join(self.of)
        if self.count is not None:
            return f"{bad} targets are {named}; the rule stops at {self.count}" if bad >= self.count else None
        if self.share is None or not bad or ended < min(self.after, total) or bad * 100 < self.share * ended:
            return None
        return (
            f"{bad} of {ended} targets that ended are {named}, which is {bad * 100 / ended:.3g}%; "
            f"the rule stops at {self.share:g}%"
        )

    def to_json(self) -> dict[str, Any]:
        """The rule as it is kept and shown."""
        bound = {"count": self.count} if self.share is None else {"share": f"{self.share:g}%", "after": self.after}
        return {"of": list(self.of), **bound, "then": "abort" if self.aborts else "pause"}


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

    def wave_ends(self, total: int) -> list[int]:
        """Return of each wave the index behind its last target. The last wave has all that are left."""
        ends: list[int] = []
        for wave in (*self.waves, WaveSpec()):
            before = ends[-1] if ends else 0
            if before >= total:
                break
            ends.append(before + wave.size(total, total - before))
        return ends

    def again(self, now: int) -> RunSpec:
        """The same for a run that begins now, and may last as long."""
        return replace(self, start_at=now, until=now + self.until - self.start_at)

    def wave(self, index: int) -> WaveSpec:
        """The wave with this index; the one behind all that were asked for has the rest."""
        return self.waves[index] if index < len(self.waves) else WaveSpec()

    def to_json(self) -> dict[str, Any]:
        """The specification as it is kept."""
        return {
            "waves": [one.to_json() for one in self.waves],
            "stop": [one.to_json() for one in self.stop],
            "in_flight": self.in_flight,
            "hold": format_duration(self.hold),
            "start_at": self.start_at,
            "until": self.until,
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
        )


def read_waves(value: object) -> tuple[WaveSpec, ...]:
    """The waves that a caller asks for; InvalidInputError."""
    entries = _list("waves", value, MOST_WAVES)
    waves = tuple(_wave(f"waves.{index}", one) for index, one in enumerate(entries))
    for index, one in enumerate(waves[:-1]):
        if one.count is None and one.share is None:
            raise InvalidInputError(f"waves.{index}", f'"{REST}" is the last wave; {len(waves) - index - 1} follow it')
    return waves


def read_rules(value: object) -> tuple[StopRule, ...]:
    """The stop rules that a caller asks for; InvalidInputError."""
    return tuple(_rule(f"stop.{index}", one) for index, one in enumerate(_list("stop", value, MOST_RULES)))


def read_in_flight(value: object) -> int:
    """The number of targets that may be in flight at once; InvalidInputError."""
    return _number("in_flight", value, 1, MOST_IN_FLIGHT)


def read_length(field: str, value: object, longest: timedelta, least: timedelta = SHORTEST) -> timedelta:
    """A duration within bounds; InvalidInputError."""
    if not isinstance(value, str):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; a duration such as 10m is needed")
    try:
        found = parse_duration(value)
    except ValueError as error:
        raise InvalidInputError(field, str(error)) from None
    if not least <= found <= longest:
        low, high = format_duration(least), format_duration(longest)
        raise InvalidInputError(field, f"{value} is out of range; allowed: {low} to {high}")
    return found


def members_of(field: str, value: object, allowed: Sequence[str]) -> Mapping[str, Any]:
    """The object itself; InvalidInputError where it is none, or has a member that is not allowed."""
    if not isinstance(value, dict):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; an object is needed")
    for name in value:
        if name not in allowed:
            raise InvalidInputError(f"{field}.{shown(name)}", f"is unknown; allowed: {', '.join(allowed)}")
    return value


def _wave(field: str, value: object) -> WaveSpec:
    if not isinstance(value, dict):
        count, share = _size(field, value)
        return WaveSpec(count, share)
    members = members_of(field, value, ("size", "bake", "then"))
    if "size" not in members:
        raise InvalidInputError(f"{field}.size", f"is missing; allowed: {_SIZES}")
    count, share = _size(f"{field}.size", members["size"])
    bake = read_length(f"{field}.bake", members["bake"], LONGEST_RUN, timedelta()) if "bake" in members else timedelta()
    then = members.get("then")
    if then not in (None, "wait"):
        raise InvalidInputError(f"{field}.then", f'{then!a} is none; allowed: "wait", until a person resumes the run')
    return WaveSpec(count, share, bake, waits=then == "wait")


def _size(field: str, value: object) -> tuple[int | None, float | None]:
    if value == REST:
        return None, None
    if isinstance(value, str):
        return None, _percent(field, value, _SIZES)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value, None
    raise InvalidInputError(field, f"{_shown(value)} is none; allowed: {_SIZES}")


def _rule(field: str, value: object) -> StopRule:
    members = members_of(field, value, ("of", "share", "count", "after", "then"))
    of = _list(f"{field}.of", members.get("of", list(USUAL_OF)), len(STOPPABLE))
    for one in of:
        if one not in STOPPABLE:
            raise InvalidInputError(f"{field}.of", f"{_shown(one)} is none; allowed: {', '.join(STOPPABLE)}")
    if not of:
        raise InvalidInputError(f"{field}.of", f"is empty; allowed: {', '.join(STOPPABLE)}")
    if ("share" in members) == ("count" in members):
        raise InvalidInputError(field, 'needs either "share", such as "5%", or "count"')
    then = members.get("then", "pause")
    if then not in ("pause", "abort"):
        raise InvalidInputError(f"{field}.then", f"{_shown(then)} is none; allowed: pause, abort")
    if "count" in members:
        if "after" in members:
            raise InvalidInputError(f"{field}.after", 'is of rules with "share"; this one has "count"')
        count = _number(f"{field}.count", members["count"], 1, 1_000_000)
        return StopRule(tuple(of), None, count, 0, aborts=then == "abort")
    share = _percent(f"{field}.share", members["share"], 'a share such as "5%", above 0% and up to 100%')
    after = _number(f"{field}.after", members.get("after", USUAL_AFTER), 1, 1_000_000)
    return StopRule(tuple(of), share, None, after, aborts=then == "abort")


def _percent(field: str, value: object, allowed: str) -> float:
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 0 < float(found[1]) <= 100:  # noqa: PLR2004 - percent
        raise InvalidInputError(field, f"{_shown(value)} is none; allowed: {allowed}")
    return float(found[1])


def _number(field: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; a whole number is needed")
    if not least <= value <= most:
        raise InvalidInputError(field, f"{value} is out of range; allowed: {least} to {most}")
    return value


def _list(field: str, value: object, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; a list is needed")
    if len(value) > most:
        raise InvalidInputError(field, f"has {len(value)} entries; allowed are {most}")
    return value


def _shown(value: object) -> str:
    return f"{value[:32]!a}" if isinstance(value, str) else str(value)[:32] if isinstance(value, int | float) else "it"
