"""Fleet runs in this process's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from app.store.fleets import KEPT, MOST_LISTED, NewRecord, RunChange, RunRecord, Written, check_open
from app.store.rules import micros


@dataclass(slots=True)
class _Lease:
    holder: str = ""
    until: int = 0
    epoch: int = 0


@dataclass(slots=True)
class _Kept:
    record: RunRecord
    targets: Sequence[Sequence[str]]
    expires_at: int
    ended: bool = False
    results: dict[int, Sequence[Any]] = field(default_factory=dict)
    lease: _Lease = field(default_factory=_Lease)


class MemoryFleets:
    """`now` is the store's clock in microseconds. It promises nothing across the end of the process."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._runs: Final[dict[str, _Kept]] = {}

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
        expires_at = now + micros(record.lasts + KEPT)
        self._runs[record.run_id] = _Kept(kept, record.targets, expires_at)
        return record.fingerprint

    async def read(self, run_id: str) -> RunRecord | None:
        self._forget_expired()
        known = self._runs.get(run_id)
        return None if known is None else known.record

    async def targets(self, run_id: str) -> Sequence[Sequence[str]]:
        known = self._runs.get(run_id)
        return () if known is None else known.targets

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
        if change.ended:
            known.ended, known.expires_at = True, self._now() + micros(KEPT)
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
        theirs = held.until > now and not (gone and held.holder.startswith(gone))
        if held.holder != holder:
            if theirs:
                return 0
            held.epoch += 1
        elif held.until <= now:
            held.epoch += 1
        held.holder, held.until = holder, now + micros(lease)
        return held.epoch

    async def let_go(self, run_id: str, holder: str) -> None:
        known = self._runs.get(run_id)
        if known is not None and known.lease.holder == holder:
            known.lease.until = 0

    def _forget_expired(self) -> None:
        now = self._now()
        for run_id in [name for name, one in self._runs.items() if one.expires_at <= now]:
            del self._runs[run_id]
