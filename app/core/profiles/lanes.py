"""Lanes: the order in which commands of certain methods leave for a device, whoever sends them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from app.core.access.patterns import fits_any

LANE_NAME: Final = "[a-z][a-z0-9_-]{0,31}"
MOST_LANES: Final = 16
"""The number of lanes of a profile."""
WIDEST: Final = 100
"""The largest number of commands that a lane may have in flight."""
SLOWEST_PACE: Final = timedelta(minutes=1)
"""The longest time that a pace puts between two commands."""
FASTEST_PACE: Final = timedelta(milliseconds=100)
"""The shortest one: those who look at a device that waits do not look more often."""
LONGEST_REST: Final = timedelta(hours=1)


class LaneOrder(StrEnum):
    """The order of the commands in a lane."""

    PARALLEL = "parallel"
    """Any that waits may be sent while the lane has room."""
    FIFO = "fifo"
    """One after the other, as they came, each after the outcome of the one before it."""
    FIFO_ACK = "fifo_ack"
    """One after the other, as they came, each as soon as the broker has the one before it."""
    LIFO = "lifo"
    """The last one that came is the next one."""
    LATEST = "latest"
    """One after the other, and only the last one waits: it takes the place of another that waits."""

    @property
    def queues(self) -> bool:
        """True if whoever comes stands behind all that wait."""
        return self in (LaneOrder.FIFO, LaneOrder.FIFO_ACK)

    @property
    def has_a_first(self) -> bool:
        """True if only the first in line may be sent."""
        return self.queues or self is LaneOrder.LIFO

    @property
    def wide(self) -> bool:
        """True if several may be in flight."""
        return self in (LaneOrder.PARALLEL, LaneOrder.LIFO)


@dataclass(frozen=True, slots=True)
class CommandLane:
    """A lane as a command on record has it: at most `width` of its commands to a device are in flight.

    One that was sent and did not succeed keeps its place for `rest` after its outcome, and between two that are sent
    lies `pace` at least. None is sent while a lane that it excludes has a command in flight. With `stops`, those that
    wait go on by a person's word after an end that is no success.
    """

    name: str
    order: LaneOrder = LaneOrder.PARALLEL
    width: int = 1
    rest: timedelta = timedelta()
    pace: timedelta = timedelta()
    excludes: tuple[str, ...] = ()
    excluded_by: tuple[str, ...] = ()
    """Lanes that exclude this one: their commands may have their turn when this one is empty."""
    stops: bool = False

    def topic(self, device_id: str) -> str:
        """Return what stands for its place at a device, among topics: no topic has such a name."""
        return lane_topic(self.name, device_id)


def lane_topic(name: str, device_id: str) -> str:
    """Return what stands for the place of a lane at a device, among topics."""
    return f"#lane/{name}/{device_id}"


@dataclass(frozen=True, slots=True)
class LaneRule:
    """A lane of a profile: which methods go through it, and how long who names no hold waits in it."""

    lane: CommandLane
    methods: tuple[str, ...]
    """Patterns, in which `*` is any text."""
    hold: timedelta = timedelta()
    """Zero: a command that finds the lane taken, and has no hold of its own, is refused."""

    def binds(self, method: str) -> bool:
        """True if commands of this method go through it."""
        return fits_any(self.methods, method)
