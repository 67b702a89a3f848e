"""Observers are told what happens to a command: metrics, the latency log, traces.

The parts that carry a command home tell facts, in the past tense. What is stored and what is sent depends on nobody who
listens, so observers can come and go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import StrEnum, auto
from typing import Concatenate, Final, ParamSpec

import structlog

from app.callbacks.pending import Pending
from app.core.commands.callback import Answer, Registration
from app.core.commands.routing import Follower, Outcome, Recorded
from app.core.messages import Publication, Receipt
from app.runtime.telemetry import Counters

_Facts = ParamSpec("_Facts")


class Way(StrEnum):
    """The way in which an outcome came home that was recorded elsewhere."""

    INLINE = auto()
    """The wake-up carried it."""
    FETCHED = auto()
    """A wake-up told of it, and it was read from the store."""
    RESYNC = auto()
    """No wake-up came: it was found by reading."""


class Observer:
    """An observer overrides the facts that it cares about: one that nobody overrides costs nothing.

    Called on the event loop in the middle of a command: return at once, and change nothing that you are shown. What you
    raise is counted and logged, and harms neither the command nor other observers. Instants are on the monotonic clock.
    """

    def registered(self, registration: Registration, opened_at: float) -> None:
        """The store has a new command of this node, which began at `opened_at`."""

    def joined(self, registration: Registration, opened_at: float) -> None:
        """The store knows a command under its idempotency key already, so this one was not registered."""

    def refused(self, registration: Registration, opened_at: float, error: BaseException) -> None:
        """The store did not take a command."""

    def published(self, command_id: str, publication: Publication, puback: asyncio.Future[Receipt]) -> None:
        """A command was handed over to the broker's connection; `puback` is done when the broker has it."""

    def unsent(self, command_id: str, error: BaseException) -> None:
        """A command did not leave."""

    def unconfirmed(self, command_id: str) -> None:
        """A command left, and nobody knows whether the broker has it."""

    def unmatched(self, command_id: str) -> None:
        """The broker took a command, and nobody was subscribed to its topic."""

    def unpromised(self, topic: str) -> None:
        """A message came with QoS 0, for which nothing is promised."""

    def recorded(self, recorded: Recorded, answer: Answer, arrived_at: float, now: float) -> None:
        """The store has its say about a response that arrived here at `arrived_at`; it gets its PUBACK next."""

    def missed(self, reason: str, answer: Answer) -> None:
        """A response could be read, and answered no command."""

    def heard(self, device_id: str, profile: str, topic: str) -> None:
        """A device said something that can be read, on a topic of this profile."""

    def unrecorded(self, answer: Answer) -> None:
        """The store did not take a response, which gets no PUBACK: the broker delivers it again."""

    def dropped(
        self,
        reason: str,
        *,
        topic: str | None = None,
        device_id: str | None = None,
        command_id: str | None = None,
        profile: str | None = None,
    ) -> None:
        """A response or a wake-up was good for nothing; what is known of it is named. `reason` is one of a few."""

    def brought(self, outcome: Outcome, way: Way) -> None:
        """An outcome from elsewhere ended a command or a wait here."""

    def closed(self, pending: Pending) -> None:
        """A command of this node has its outcome, and a parked caller was handed it. Once for each command."""

    def next_in_lane(self, follower: Follower) -> None:
        """A held command may have its turn: it was registered just now, or an outcome made here freed its lane."""

    def foreign(self, outcome: Outcome) -> None:
        """This node ended a command that is not open here: another node's, or one that was not sent."""


class Observers:
    """For each fact those who want to know, in order: `for tell in observers.closed: tell(pending)`.

    Found once, when a node is put together, so that a fact costs a call for each who listens and no more.
    """

    def __init__(self, counters: Counters, observers: Iterable[Observer] = ()) -> None:
        self._counters = counters
        self._observers: Final = tuple(observers)
        self._failed: set[tuple[str, str]] = set()
        self._log = structlog.get_logger()
        self.registered = self._listeners(Observer.registered)
        self.joined = self._listeners(Observer.joined)
        self.refused = self._listeners(Observer.refused)
        self.published = self._listeners(Observer.published)
        self.unsent = self._listeners(Observer.unsent)
        self.unconfirmed = self._listeners(Observer.unconfirmed)
        self.unmatched = self._listeners(Observer.unmatched)
        self.unpromised = self._listeners(Observer.unpromised)
        self.recorded = self._listeners(Observer.recorded)
        self.missed = self._listeners(Observer.missed)
        self.heard = self._listeners(Observer.heard)
        self.unrecorded = self._listeners(Observer.unrecorded)
        self.dropped = self._listeners(Observer.dropped)
        self.brought = self._listeners(Observer.brought)
        self.closed = self._listeners(Observer.closed)
        self.next_in_lane = self._listeners(Observer.next_in_lane)
        self.foreign = self._listeners(Observer.foreign)

    def _listeners(self, fact: Callable[Concatenate[Observer, _Facts], None]) -> tuple[Callable[_Facts, None], ...]:
        name = fact.__name__
        return tuple(
            self._guarded(type(one).__name__, name, getattr(one, name))
            for one in self._observers
            if getattr(type(one), name) is not fact
        )

    def _guarded(self, observer: str, fact: str, tell: Callable[_Facts, None]) -> Callable[_Facts, None]:
        def told(*facts: _Facts.args, **named: _Facts.kwargs) -> None:
            try:
                tell(*facts, **named)
            except Exception as error:  # noqa: BLE001 - whatever it is, the command goes on
                self._fails(observer, fact, error)

        return told

    def _fails(self, observer: str, fact: str, error: Exception) -> None:
        """Count it, and log the first of each kind: a broken observer may fail with every command."""
        self._counters["observer.failed"] += 1
        if (observer, fact) not in self._failed:
            self._failed.add((observer, fact))
            self._log.error("observer_failed", observer=observer, fact=fact, reason=str(error), exc_info=error)
