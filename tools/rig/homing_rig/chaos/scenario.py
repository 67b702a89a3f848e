"""Scenarios: how each is provoked, how large it is, and the figures that it must reach."""

from __future__ import annotations

import operator
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from homing_rig.chaos.schedule import Fault

if TYPE_CHECKING:
    from homing_rig.chaos.rig import Rig

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "=": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A pass figure. `name` is a measure of the rig or a figure of the checker."""

    name: str
    compare: str
    """`=`, `<=` or `>=`."""
    limit: float
    meaning: str
    timing: bool = False
    """A speed: it is shown, but not judged in the short form, as other tests use the machine as well."""
    short: float | None = None
    """The limit of the short form, where it is another one: only what is wrong exceeds it, however busy the machine."""

    def reached(self, value: float) -> bool:
        """True if this value passes."""
        return _COMPARE[self.compare](value, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The size of a scenario. Durations are in seconds."""

    seconds: float | None = 60.0
    commands: int | None = None
    """The number of commands, in place of `seconds`; one of both is needed."""
    rate: float | None = 200.0
    """Commands offered per second; None: as fast as `in_flight` callers get answers."""
    in_flight: int = 64
    nodes: int = 3
    devices: int = 200
    events: float = 0.0
    """Events that devices say per second beside the commands."""
    sessions: int = 4
    timeout: float = 10.0
    delay: tuple[float, float] = (0.0, 0.2)
    """The shortest and the longest time from the command to the answer, in seconds."""
    patience: float = 30.0
    attempt: float = 15.0
    share_async: float = 0.5
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the nodes."""
    every: float = 5.0
    """The seconds between two faults."""
    down: float = 2.0
    """The time that a fault lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`plan` makes the schedule of faults, `act` does the rest."""

    name: str
    title: str
    provoke: str
    figures: Sequence[Figure]
    full: Form
    short: Form
    act: Callable[[Rig], Awaitable[None]]
    plan: Callable[[random.Random, Form], list[Fault]] = lambda _rng, _form: []
    proxies: bool = False
    """True if a fault proxy stands between each node and Redis."""
    steps: bool = False
    """True if the clock of Redis can be set."""
    replica: bool = False
    """True if Redis has a replica that can take its place; then there are proxies, too."""
    cluster: bool = False
    """True if Redis is a cluster of three primaries with a replica each."""
    drives: bool = False
    """True if it has a fleet run, whose driver a fault may be for."""
    lane: str = ""
    """Keys that are added to the profile `homing`, as TOML."""
    fsync: str = "everysec"
    """The moment at which Redis writes what it was told: `appendfsync`."""
    skews: Sequence[int] = ()
    """The seconds by which the wall clocks of the first nodes are wrong."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Figures of the checker that may be more here than elsewhere."""
    expects: tuple[str, ...] = ("I1", "I2", "I3", "I4", "I5", "I7", "F5")
    """Invariants for which a run must have evidence: where no device answers and nobody is told, nothing is lost."""
    tolerated: tuple[str, ...] = ()
    """Kinds of violations that the scenario cannot exclude; they are counted and shown."""
