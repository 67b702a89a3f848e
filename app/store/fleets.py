"""The port of fleet runs: what each is to do, how far it has come, and who drives it.

Everything of a run changes in one step, `write`, which compares: with the version that its writer has read, and, for
the driver, with the epoch of its lease. So a person who pauses a run and the driver that hands out commands never
overwrite each other, and a driver that was replaced writes nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum, auto
from typing import Any, Final, Protocol

from app.core.errors import CapacityError

KEPT: Final = timedelta(days=7)
"""The time for which a run is readable after its end, or after the latest possible one."""
MOST_OPEN: Final = 100
"""The number of runs that have not ended."""
MOST_OPEN_OF_TENANT: Final = MOST_OPEN // 2
"""The number of those of one tenant."""
MOST_LISTED: Final = 1_000
"""The number of runs that are listed, the latest ones."""
CHUNK: Final = 1_000
"""The targets that are written and read together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as it is kept. `created_at` is in microseconds on the store's clock."""

    run_id: str
    version: int
    created_at: int
    fingerprint: str
    plan: Mapping[str, Any]
    """The part that never changes: who asked for what."""
    status: Mapping[str, Any]
    marks: bytes
    """A byte for each target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A run that is to be kept. `fingerprint` tells what was asked for, for the comparison under an idempotency key."""

    run_id: str
    fingerprint: str
    plan: Mapping[str, Any]
    status: Mapping[str, Any]
    marks: bytes
    targets: Sequence[Sequence[str]]
    """The id and the profile of each target, and behind them what else the run goes by."""
    lasts: timedelta
    """The time until its latest possible end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """A change of a run, made by somebody who has read this version of it."""

    version: int
    status: Mapping[str, Any]
    marks: bytes
    results: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    """The notes about targets that have ended, by their index: JSON."""
    epoch: int | None = None
    """The epoch of the driver; None for people, who write whatever the driver does."""
    ended: bool = False


class Written(StrEnum):
    """The result of an attempt to write."""

    YES = auto()
    OTHERWISE = auto()
    """Somebody has written meanwhile: read it again."""
    FENCED = auto()
    """Another node drives the run."""
    GONE = auto()


def check_open(count: int) -> None:
    """CapacityError where there are as many open runs as there may be."""
    if count >= MOST_OPEN:
        raise CapacityError(f"{MOST_OPEN} fleet runs have not ended, which is all that a cluster drives at once")


class FleetStore(Protocol):
    """Each call is atomic for its run, and safe to repeat; StoreUnavailableError means that it may have happened."""

    async def create(self, record: NewRecord) -> str:
        """Keep a new run. Return its fingerprint: that of an earlier one where there is one with this id.

        Nobody sees it before all its targets are written. If its writer dies before that, they are gone by themselves.
        CapacityError while MOST_OPEN runs have not ended.
        """

    async def relist(self, record: RunRecord) -> None:
        """Put a run that has not ended among those that are listed, if whoever created it died before they did."""

    async def read(self, run_id: str) -> RunRecord | None:
        """The run; None where there is none."""

    async def targets(self, run_id: str, begin: int = 0, end: int | None = None) -> Sequence[Sequence[str]]:
        """The id and the profile of these targets, in their order; empty where there is no such run."""

    async def results(self, run_id: str, indexes: Sequence[int]) -> Sequence[Sequence[Any] | None]:
        """The notes about these targets, in the same order; None where there is none."""

    async def write(self, run_id: str, change: RunChange) -> Written:
        """Change a run. One that has ended is not among the open ones any more, and one that is gone is not listed."""

    async def open_runs(self) -> Sequence[str]:
        """The ids of runs that have not ended, the oldest first."""

    async def runs(self) -> Sequence[RunRecord]:
        """The latest runs, without their marks, the newest first."""

    async def drive(self, run_id: str, holder: str, lease: timedelta, gone: str = "") -> int:
        """Take the lease of a run, or renew it: the epoch, which grows with each change of hands; 0 where it is taken.

        `gone` is what the name of a holder begins with who is known to be dead, whose lease counts no more.
        """

    async def let_go(self, run_id: str, holder: str) -> None:
        """Give the lease up, where it is this holder's."""
