"""The memoir of a window: values from which a window can be made again that goes on as the first one would have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from app.core.events.event import Position
from app.core.queues.loans import DatedGroup, Reference, ReferenceGroup


class KeptLoan(NamedTuple):
    """A loan, and the indexes of it that are not settled."""

    consumer: str
    deliveries: int
    deadline: Position
    references: tuple[Reference, ...]
    outstanding: frozenset[int]


class KeptOrder(NamedTuple):
    """The event of a device that is lent or to be lent next, and those that wait behind it."""

    holder: Position
    parked: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFacts:
    """Numbers and names of a window. The last four say who asked: nothing is lost with them."""

    life: str
    fed: Position
    until: Position = 0
    serial: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    expired: int = 0
    missed: int = 0
    delivered: int = 0
    again: int = 0
    holder: str = ""
    held_at: Position = 0
    asked: Position = 0
    consumers: tuple[tuple[str, Position], ...] = ()


@dataclass(frozen=True, slots=True)
class WindowMemoir:
    """All of a window. Places, numbers and devices name its parts for as long as they are in it."""

    facts: WindowFacts
    ready: Mapping[int, ReferenceGroup]
    loans: Mapping[int, KeptLoan]
    later: Mapping[int, DatedGroup]
    orders: Mapping[int, KeptOrder]

    @property
    def latest(self) -> Position:
        """Return the latest instant at which somebody asked or held it, noted once a second.

        The latest number is no such instant: of several that come in one moment, the last ones are ahead of it.
        """
        return max(self.facts.asked, self.facts.held_at)
