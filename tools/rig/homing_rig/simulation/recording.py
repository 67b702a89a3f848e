"""The history of a simulated run, in memory and with lines, as the checker of the chaos rig reads it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from hashlib import sha256

import orjson

from homing_rig.chaos.history import Event


class Recording:
    """Events in the order in which they happened."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.operations = itertools.count()
        self.sequences = itertools.count()
        self._closed = False
        self.told: list[Callable[[Event], None]] = []
        """The listeners that are told of each event, when it is written."""

    def write(self, event: Event) -> None:
        """Append an event."""
        if not self._closed:
            self.events.append(event)
            for tell in self.told:
                tell(event)

    def close(self) -> None:
        """Take nothing more, and let go of who was told: those know the whole world."""
        self._closed = True
        self.told.clear()

    def digest(self, *more: object) -> str:
        """The digest that is equal for two runs in which the same happened at the same time."""
        told = [(type(event).__name__, event) for event in self.events]
        return sha256(orjson.dumps((told, more), default=dict)).hexdigest()[:16]
