"""Fleet runs in this process's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from app.store.fleets import KEPT, MOST_LISTED, NewRecord, RunChange, RunRecord, Written, check_open
from app.store.memory.commands.records import Changed, nobody
from app.store.rules import micros

PLAN_ROW: Final = "p"
"""The part of a run that never changes."""
RUN_ROW: Final = "r"
"""The part of a run that changes."""
RESULT_ROW: Final = "s"
"""The note about one of its targets."""


@dataclass(slots=True)
class RunLease:
    """The right to drive a run. A holder has it until an instant (µs); the epoch grows with each change of hands."""

    holder: str = ""
    until: int = 0
    epoch: int = 0


@dataclass(slots=True)
class KeptRun:
    """A run, with all that belongs to it. Instants in µs."""

    record: RunRecord
    targets: Sequence[Sequence[str]]
    expires_at: int
    changed_at: int
    """The instant at which somebody has changed it last, or begun it."""
    ended: bool = False
    results: dict[int, Sequence[Any]] = field(default_factory=dict)
    lease: RunLease = field(default_factory=RunLease)


class MemoryFleets:
    """`now` is the store's clock in microseconds; `changed` is told what somebody else may keep."""

    def __init__(self, now: Callable[[], int], changed: Changed = nobody) -> None:
        self._now = now
        self._changed = changed
        self._runs: Final[dict[str, KeptRun]] = {}

    def kept(self, run_id: str) -> KeptRun | None:
        """Return a run with all that belongs to it, if there is one."""
        return self._runs.get(run_id)

    def restore(self, run: KeptRun) -> None:
        """A run as it was, the oldest first. A lease ends with the process, so nobody drives it."""
        self._runs[run.record.run_id] = run

    async def create(self, record: NewRecord) -> str:
        self._forget_expired()
        known = self._runs.get(record.run_id)
        if known is not None:
            return known.record.fingerprint
        check_open(len(await self.open_runs()))
        now = self._now()
        kept = RunRecord(
            run_id=record.run_id,
            version=1,
            created_at=now,
            fingerprint=record.fingerprint,
            plan=record.plan,
            status=record.status,
            marks=record.marks,
        )
        self._runs[record.run_id] = KeptRun(kept, record.targets, now + micros(record.lasts + KEPT), now)
        self._changed((PLAN_ROW, record.run_id))
        self._changed((RUN_ROW, record.run_id))
        return record.fingerprint

    async def relist(self, record: RunRecord) -> None:
        """Do nothing: a run is created and listed in one step."""

    async def read(self, run_id: str) -> RunRecord | None:
        self._forget_expired()
        known = self._runs.get(run_id)
        return None if known is None else known.record

    async def targets(self, run_id: str, begin: int = 0, end: int | None = None) -> Sequence[Sequence[str]]:
        known = self._runs.get(run_id)
        return () if known is None else known.targets[begin:end]

    async def results(self, run_id: str, indexes: Sequence[int]) -> Sequence[Sequence[Any] | None]:
        known = self._runs.get(run_id)
        found: Mapping[int, Sequence[Any]] = {} if known is None else known.results
        return [found.get(one) for one in indexes]

    async def write(self, run_id: str, change: RunChange) -> Written:
        self._forget_expired()
        known = self._runs.get(run_id)
        if known is None:
            return Written.GONE
        if change.epoch not in (None, known.lease.epoch):
            return Written.FENCED
        if change.version != known.record.version:
            return Written.OTHERWISE
        known.record = replace(known.record, version=change.version + 1, status=change.status, marks=change.marks)
        known.results |= change.results
        known.changed_at = self._now()
        if change.ended:
            known.ended, known.expires_at = True, known.changed_at + micros(KEPT)
        self._changed((RUN_ROW, run_id))
        for index in change.results:
            self._changed((RESULT_ROW, run_id, str(index)))
        return Written.YES

    async def open_runs(self) -> Sequence[str]:
        self._forget_expired()
        return [one.record.run_id for one in self._runs.values() if not one.ended]

    async def runs(self) -> Sequence[RunRecord]:
        self._forget_expired()
        newest = list(self._runs.values())[: -MOST_LISTED - 1 : -1]
        return [replace(one.record, marks=b"") for one in newest]

    async def drive(self, run_id: str, holder: str, lease: timedelta, gone: str = "") -> int:
        known = self._runs.get(run_id)
        if known is None:
            return 0
        now, held = self._now(), known.lease
        if held.holder != holder and held.until > now and not (gone and held.holder.startswith(gone)):
            return 0
        if held.holder != holder or held.until <= now:
            held.epoch += 1
            self._changed((RUN_ROW, run_id))
        held.holder, held.until = holder, now + micros(lease)
        return held.epoch

    async def let_go(self, run_id: str, holder: str) -> None:
        known = self._runs.get(run_id)
        if known is not None and known.lease.holder == holder:
            known.lease.until = 0

    def _forget_expired(self) -> None:
        now = self._now()
        for run_id in [name for name, one in self._runs.items() if one.expires_at <= now]:
            gone = self._runs.pop(run_id)
            self._changed((PLAN_ROW, run_id))
            self._changed((RUN_ROW, run_id))
            for index in gone.results:
                self._changed((RESULT_ROW, run_id, str(index)))
