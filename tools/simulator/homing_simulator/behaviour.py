"""The behaviour of a device that gets a message: it decides, and leaves sending and waiting to the fleet."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from app.core.errors import InvalidInputError
from app.core.messages import Publication, ReceivedMessage
from app.core.profiles.catalogue import Catalogue
from homing_simulator.families import FAMILIES, Request
from homing_simulator.options import FleetOptions, Range
from homing_simulator.played import played

Planned = tuple[float, Publication]
"""A publication, and in how many seconds from now to send it."""


class Kind(StrEnum):
    """The kinds of things that became of a message."""

    ANSWERED = "answered"
    REFUSED = "refused"
    DROPPED = "dropped"
    DUPLICATED = "duplicated"
    LATE = "late"
    GARBAGE = "garbage"
    SILENT = "silent"
    NOT_A_COMMAND = "not_a_command"


@dataclass(frozen=True, slots=True)
class Reaction:
    """The reaction of a device; `command_id` is None when it could read no command."""

    kind: Kind
    command_id: str | None = None
    planned: list[Planned] = field(default_factory=list)


GARBAGE: Final = (
    b"",
    b"\x00\xff\xfe not text",
    b'{"id": "cut of',
    b"[" * 200,
    b'{"data": {"result": NaN}}',
    b'{"tid": "a", "tid": "b"}',
    b'{"id": "\\ud800"}',
    b'"a text"',
    b"{}",
)
"""Payloads that are no answer: not JSON, JSON that readers understand differently, or JSON of another kind."""


class Behaviour:
    """The reactions of a fleet's devices. Chance comes from `rng` alone, so one seed gives one history."""

    def __init__(self, options: FleetOptions, rng: random.Random, catalogue: Catalogue | None = None) -> None:
        """Make the behaviour; with a `catalogue`, devices refuse what it does not have."""
        self._options = options
        self._catalogue = catalogue
        self._family = FAMILIES[options.profile] if options.speaks is None else played(options.speaks)
        self._random = rng.random
        self._choice = rng.choice
        self._faults = _cumulated(options)
        self._instant = options.delay.high.total_seconds() == 0

    def command_topics(self, device_id: str) -> tuple[str, ...]:
        """The topic filters of the device's commands; ConfigurationError when there can be no such device."""
        return self._family.command_topics(device_id)

    def react(self, message: ReceivedMessage, now: float, own: Collection[str] | None = None) -> Reaction:
        """Decide; `now` is the wall clock in seconds since the epoch. With `own` only these devices are meant."""
        try:
            request = self._family.read(message)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return Reaction(Kind.NOT_A_COMMAND)
        if own is not None and request.device_id not in own:
            return Reaction(Kind.NOT_A_COMMAND)
        if request.method in self._options.silent_methods:
            return Reaction(Kind.SILENT, request.command_id)
        if not self._knows(request):
            said = self._family.unknown(request, now)
            return self._reaction(Kind.REFUSED, request, self._spaced([] if said is None else [said]))
        kind = self._draw() if self._faults else Kind.ANSWERED
        return self._reaction(kind, request, self._plan(kind, request, now))

    def _reaction(self, kind: Kind, request: Request, planned: list[Planned]) -> Reaction:
        """Silent is what should say something and has no words for it."""
        mute = not planned and kind is not Kind.DROPPED
        return Reaction(Kind.SILENT if mute else kind, request.command_id, planned)

    def _knows(self, request: Request) -> bool:
        if self._catalogue is None or not request.method:  # "" is of families that tell no method
            return True
        try:
            self._catalogue.check(self._options.profile, request.method, request.params)
        except InvalidInputError:
            return False
        return True

    def _draw(self) -> Kind:
        drawn = self._random()
        for limit, kind in self._faults:
            if drawn < limit:
                return kind
        return Kind.ANSWERED

    def _plan(self, kind: Kind, request: Request, now: float) -> list[Planned]:
        match kind:
            case Kind.DROPPED:
                return []
            case Kind.GARBAGE:
                body = self._choice(GARBAGE)
                return self._spaced([Publication(request.response_topic, body, correlation_data=None)])
            case Kind.REFUSED:
                said = self._family.refusal(request, now)
                return self._spaced([] if said is None else [said])
            case Kind.LATE:
                past_deadline = max(0.0, (request.deadline or now) - now)
                wait = past_deadline + self._between(self._options.late_by)
                return [(wait + delay, one) for delay, one in self._spaced(self._family.answers(request, now))]
            case Kind.DUPLICATED:
                return [planned for planned in self._spaced(self._family.answers(request, now)) for _ in range(2)]
            case _:
                return self._spaced(self._family.answers(request, now))

    def _spaced(self, publications: list[Publication]) -> list[Planned]:
        """Send one after the other, each a delay after the one before."""
        if self._instant:
            return [(0.0, publication) for publication in publications]
        at = 0.0
        planned = []
        for publication in publications:
            at += self._between(self._options.delay)
            planned.append((at, publication))
        return planned

    def _between(self, bounds: Range) -> float:
        low, high = bounds.low.total_seconds(), bounds.high.total_seconds()
        return low + (high - low) * self._random()


def _cumulated(options: FleetOptions) -> tuple[tuple[float, Kind], ...]:
    """The faults that can happen, each with the upper limit of a draw from 0.0 to 1.0 that means it."""
    shares = (
        (options.drop, Kind.DROPPED),
        (options.duplicate, Kind.DUPLICATED),
        (options.late, Kind.LATE),
        (options.garbage, Kind.GARBAGE),
        (options.refuse, Kind.REFUSED),
    )
    total = 0.0
    limits = []
    for share, kind in shares:
        if share:
            total += share
            limits.append((total, kind))
    return tuple(limits)
