"""A schedule: what begins at which instants, and how it stands with them. All instants are in microseconds since 1970.

An occurrence is one instant of the timetable. What becomes of it is decided once, in the step that writes the schedule
with the occurrence in it; what it begins has an id that follows from the occurrence. So two nodes that see it at the
same time decide it once, and a node that finishes what another one began makes no second run and no second command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum, auto
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from app.core.errors import InvalidInputError
from app.core.fleets.ids import child_id
from app.core.tenants import tenant_level

NAME: Final = "[a-z0-9][a-z0-9._-]{0,63}"
KEPT_OCCURRENCES: Final = 20
USUAL_CATCH_UP: Final = timedelta(minutes=10)
LEAST_CATCH_UP: Final = timedelta(seconds=10)
MOST_CATCH_UP: Final = timedelta(hours=24)
MOST_BYTES: Final = 65_536
"""The size of what a schedule says: each node reads all schedules again when one of them has changed."""
VERSION: Final = 1
_WRITTEN_AGAIN: Final = "the schedule was written again before a node had noted that it began"
_NAME: Final = re.compile(NAME, re.ASCII)

Upcoming = Callable[[int], Iterator[int]]
"""The instants of a timetable behind an instant, in their order."""


class OccurrenceResult(StrEnum):
    """The result of an occurrence."""

    BEGINNING = auto()
    """A node is about to begin what the schedule says, or died while it was."""
    BEGAN = auto()
    SKIPPED = auto()
    """The run or command that the occurrence before had begun had not ended."""
    MISSED = auto()
    """No node looked in time."""
    FAILED = auto()
    """There was nothing to begin, or no node could."""
    REFUSED = auto()
    """The principal of the schedule may not do this any more: the schedule has paused itself."""


class ScheduleOverlap(StrEnum):
    """The fate of an occurrence while what the one before it began has not ended."""

    SKIP = auto()
    """It begins nothing."""
    QUEUE_ONE = auto()
    """It waits for that end, within the catch-up; of several that wait the latest begins."""
    REPLACE = auto()
    """It ends what began before, and begins when that has its end, within the catch-up."""
    PARALLEL = auto()
    """It begins all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """An instant of the timetable, and what became of it. `began` is the id of a run or of a command."""

    at: int
    result: OccurrenceResult
    noted_at: int
    node: str
    began: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """The work of a schedule, and its instants: either `run`, or `command` for `device`, as they were asked for."""

    cron: str
    zone: str
    run: Mapping[str, Any] | None = None
    device: str | None = None
    command: Mapping[str, Any] | None = None
    catch_up: int
    """An occurrence that was missed by this much or less is still begun (µs)."""
    until: int | None = None
    enabled: bool = True
    overlap: str = ScheduleOverlap.SKIP
    jitter: int = 0
    """Each occurrence begins up to so much later (µs), by a time of its own."""


class DueOccurrence(NamedTuple):
    """An instant of the timetable whose time has come, and whether it came too long ago."""

    at: int
    missed: bool
    passed_over: bool
    """True if others before it were passed over: of what was missed, the latest runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule. `tenant` is None where who operates Homing wrote it, and "" where nobody is asked."""

    name: str
    tenant: str | None
    by: str
    """The principal who wrote it, as whom it acts."""
    who: str
    """The same, as `app/core/access/callers.py` writes them; empty where nobody is asked."""
    spec: ScheduleSpec
    generation: int
    """The instant at which it was written; it knows of none before."""
    decided: int
    """The instant up to which all occurrences are decided."""
    paused: str = ""
    """The reason why the schedule has paused itself, in a sentence; empty while it has not."""
    occurrences: tuple[Occurrence, ...] = ()
    """The latest ones, the newest first."""

    @property
    def document(self) -> str:
        """The name under which it is kept."""
        return document_of(self.tenant, self.name)

    @property
    def runs(self) -> bool:
        """True if it goes on."""
        return self.spec.enabled and not self.paused

    @property
    def last_begun(self) -> str:
        """The id of what it has begun last; empty where it has begun nothing."""
        return next((one.began for one in self.occurrences if one.began), "")

    def due(self, upcoming: Upcoming, now: int, known: int = 0) -> DueOccurrence | None:
        """The occurrence that is to be decided now, if there is one.

        Of several that have passed it is the latest within the catch-up; where all of them are older, the first one.
        `known` is the one that was due before: while that waits, those before it are not counted again.
        """
        if not self.runs:
            return None
        first = self._next(upcoming, self.decided)
        if first is None or first > now:
            return None
        latest = None
        for at in upcoming(max(self.decided, now - self.spec.catch_up - 1, known - 1 if known <= now else 0)):
            if at > now or self._is_over(at):
                break
            latest = at
        if latest is None:
            return DueOccurrence(first, missed=True, passed_over=False)
        return DueOccurrence(latest, missed=False, passed_over=latest != first)

    def coming(self, upcoming: Upcoming, now: int, most: int) -> list[int]:
        """The next instants at which something begins; none while it is paused or disabled."""
        found: list[int] = []
        if self.runs:
            for at in upcoming(max(self.decided, now)):
                if len(found) == most or self._is_over(at):
                    break
                found.append(at)
        return found

    def begins_at(self, at: int) -> int:
        """The instant at which an occurrence begins: the same for all nodes, and another one for each schedule."""
        if not self.spec.jitter:
            return at
        digest = blake2b(f"{self.document} {at}".encode(), digest_size=8).digest()
        return at + int.from_bytes(digest) % (self.spec.jitter + 1)

    def unfinished(self) -> Occurrence | None:
        """The occurrence that a node is about to begin, if there is one."""
        return next((one for one in self.occurrences if one.result is OccurrenceResult.BEGINNING), None)

    def with_decided(self, occurrence: Occurrence, now: int) -> Schedule:
        """The same with an occurrence that is decided. Of missed ones, all that are too old are decided with it."""
        decided = occurrence.at
        if occurrence.result is OccurrenceResult.MISSED:
            decided = max(decided, now - self.spec.catch_up - 1)
        return replace(self, decided=decided, occurrences=_latest((occurrence, *self.occurrences)))

    def with_ended(self, occurrence: Occurrence, paused: str = "") -> Schedule:
        """The same with what became of an occurrence that was being begun."""
        begun = self.unfinished()
        known = (occurrence if one is begun and one.at == occurrence.at else one for one in self.occurrences)
        return replace(self, occurrences=tuple(known), paused=paused)

    def left_behind(self) -> tuple[Occurrence, ...]:
        """Its occurrences, for the schedule that is written in its place.

        That one begins other things under other ids, so nobody goes on with what a node was about to begin.
        """
        return tuple(
            replace(one, result=OccurrenceResult.FAILED, reason=_WRITTEN_AGAIN)
            if one.result is OccurrenceResult.BEGINNING
            else one
            for one in self.occurrences
        )

    def key_of(self, at: int) -> str:
        """The idempotency key of an occurrence. It has spaces, so it is no key that a caller can send."""
        return f"schedule {self.document} {self.generation} {at}"

    def command_id_of(self, at: int) -> str:
        """The id of the command of an occurrence, whoever makes it."""
        return child_id(self.key_of(at), 0, 1, self.spec.device or "", at)

    def _next(self, upcoming: Upcoming, behind: int) -> int | None:
        at = next(upcoming(behind), None)
        return None if at is None or self._is_over(at) else at

    def _is_over(self, at: int) -> bool:
        return self.spec.until is not None and at > self.spec.until


def _latest(occurrences: Sequence[Occurrence]) -> tuple[Occurrence, ...]:
    """The latest ones. The last that began something is among them, however long it goes on and others are skipped."""
    latest = occurrences[:KEPT_OCCURRENCES]
    if any(one.began for one in latest):
        return tuple(latest)
    began = next((one for one in occurrences[KEPT_OCCURRENCES:] if one.began), None)
    return tuple(latest) if began is None else (*latest[:-1], began)


def validate_schedule_name(name: str) -> str:
    """The name itself; InvalidInputError."""
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError(
            "name",
            f"{name[:64]!a} is none; allowed: 1 to 64 of a-z 0-9 . _ -, and the first is a letter or a digit",
        )
    return name


def check_size(spec: ScheduleSpec) -> None:
    """InvalidInputError where a schedule says more than it may."""
    size = len(json.dumps(asdict(spec), separators=(",", ":")))
    if size > MOST_BYTES:
        field, hint = ("command", "") if spec.run is None else ("run", "; name many devices by labels and patterns")
        raise InvalidInputError(
            field, f"is too long: the schedule has {size} bytes, and allowed are {MOST_BYTES}{hint}"
        )


def document_of(tenant: str | None, name: str) -> str:
    """The name under which the schedule of a tenant is kept."""
    return f"{tenant_level(tenant or '')} {name}"


def encode_schedule(schedule: Schedule) -> bytes:
    """The schedule as it is kept."""
    kept = asdict(schedule)
    return json.dumps({"v": VERSION, **kept}, separators=(",", ":"), sort_keys=True).encode()


def decode_schedule(document: bytes) -> Schedule:
    """The schedule that `encode_schedule` wrote; ValueError, KeyError or TypeError where it cannot be read."""
    kept = json.loads(document)
    if kept.pop("v") > VERSION:
        raise ValueError("it was written by a later version")
    known = {one.name for one in fields(Schedule)}
    members = {name: value for name, value in kept.items() if name in known}
    occurrences = (Occurrence(**{**one, "result": OccurrenceResult(one["result"])}) for one in kept["occurrences"])
    return Schedule(**{**members, "spec": ScheduleSpec(**kept["spec"]), "occurrences": tuple(occurrences)})
