"""Queues of one process, in the folder of its event log: those in memory, each step of which is on the disk.

A step changes memory, gives the rows that differ to the batch that all drawers of the folder share, and returns when
they are synced. Who asked and when is written with the next rows, or once a minute: nothing is lost with it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from app.core.clock import Clock
from app.core.errors import StoreUnavailableError
from app.core.events.event import Position, Shard
from app.core.queues.hints import QueueHint, hints_of
from app.core.queues.loans import (
    CONSUMER_US,
    DatedGroup,
    Dying,
    Fed,
    LendingRules,
    LoanWish,
    QueueSource,
    ReferenceGroup,
    Settled,
    Settlement,
    SourceState,
)
from app.core.queues.memoir import WindowFacts, WindowMemoir
from app.core.queues.window import QueueWindow
from app.runtime.telemetry import Fill
from app.store.declared import Declarations, DocumentChange
from app.store.memory.queues import MemoryDeclared, MemoryQueues
from app.store.queues import TakeCall, Taken
from app.store.rocks.folder import RocksFolder
from app.store.rocks.queue_rows import (
    VERSION_KEY,
    cemetery_row,
    document_key,
    dying_key,
    dying_row,
    read_rows,
    window_rows,
)
from app.store.rocks.rowtable import RowTable

FAMILY: Final = "queues"
ASKED_US: Final = CONSUMER_US
"""The age that a note on the disk may have which tells when somebody asked last."""

T = TypeVar("T")


class RocksQueues:
    """A drawer of a folder: windows, and what is declared. `budget` bounds a call, though a disk is slow to sync."""

    def __init__(
        self,
        folder: RocksFolder,
        clock: Clock,
        new_life: Callable[[], str],
        *,
        budget: timedelta = timedelta(seconds=10),
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._new_life = new_life
        self._budget = budget.total_seconds()
        self._table: Final = RowTable(folder, FAMILY, self._load)
        self._changed: dict[QueueSource | Shard, None] = {}
        self._asked: set[QueueSource] = set()
        self._last: asyncio.Future[None] | None = None
        self._heard: list[Callable[[QueueHint], None]] = []
        self._load({})

    async def start(self) -> None:
        await self._folder.start(self._table)

    async def close(self) -> None:
        if not self._table.stale:
            self._changed |= dict.fromkeys(self._asked)
            self._write(everything=True)
        if self._last is not None:  # for which perhaps nobody waits
            await asyncio.wait([self._last], timeout=self._budget)
        await self._folder.close(self._table)

    def fills(self) -> dict[str, Fill]:
        return {}  # the log tells of the folder

    async def now(self) -> Position:
        return await self._memory.now()

    def server_of(self, source: QueueSource) -> str:  # noqa: ARG002 - there is one
        return ""

    async def feed(
        self,
        source: QueueSource,
        start: Position,
        expected: Position,
        fed: Position,
        groups: Sequence[ReferenceGroup],
        most: int,
        missed: int = 0,
        dated: Sequence[DatedGroup] = (),
    ) -> Fed:
        return await self._step(lambda memory: memory.feed(source, start, expected, fed, groups, most, missed, dated))

    async def take(self, source: QueueSource, rules: LendingRules, wishes: Sequence[LoanWish], call: TakeCall) -> Taken:
        return await self._step(lambda memory: memory.take(source, rules, wishes, call))

    async def settle(
        self, source: QueueSource, rules: LendingRules, life: str, said: Sequence[Settlement], jitter: int
    ) -> Settled:
        return await self._step(lambda memory: memory.settle(source, rules, life, said, jitter))

    async def dismiss(self, source: QueueSource, consumer: str) -> int:
        return await self._step(lambda memory: memory.dismiss(source, consumer))

    async def dying(self, shard: Shard, most: int) -> Sequence[Dying]:
        return await self._step(lambda memory: memory.dying(shard, most))

    async def buried(self, shard: Shard, number: int) -> None:
        await self._step(lambda memory: memory.buried(shard, number))

    async def seek(self, source: QueueSource, fed: Position) -> None:
        await self._step(lambda memory: memory.seek(source, fed))

    async def redrive(self, source: QueueSource, until: Position) -> None:
        await self._step(lambda memory: memory.redrive(source, until))

    async def states(self, sources: Sequence[QueueSource]) -> Sequence[SourceState | None]:
        return await self._step(lambda memory: memory.states(sources))

    async def lent_until(self, sources: Sequence[QueueSource]) -> Position:
        return await self._step(lambda memory: memory.lent_until(sources))

    async def forget(self, sources: Sequence[QueueSource]) -> None:
        await self._step(lambda memory: memory.forget(sources))

    async def hint(self, sources: Iterable[QueueSource]) -> None:
        for one in hints_of(sources):
            for heard in self._heard:
                heard(one)

    def hear(self, heard: Callable[[QueueHint], None]) -> None:
        self._heard.append(heard)

    async def version(self) -> int:
        with self._folder.using():
            self._table.check()
            return await self._declared.version()

    async def read(self, since: int = -1) -> Declarations:
        with self._folder.using():
            self._table.check()
            return await self._declared.read(since)

    async def apply(self, changes: Sequence[DocumentChange], expected: int) -> int | None:
        async def applied() -> int | None:
            with self._folder.using():
                self._table.check()
                version = await self._declared.apply(changes, expected)
                if version is not None:
                    rows = {document_key(one.name): one.document for one in changes}
                    self._submit({**rows, VERSION_KEY: b"%d" % version})
                await self._synced()
                return version

        return await self._in_time(applied())

    async def _step(self, work: Callable[[MemoryQueues], Awaitable[T]]) -> T:
        async def done() -> T:
            with self._folder.using():
                self._table.check()
                try:
                    result = await work(self._memory)  # which waits for nothing, so it is one step
                finally:
                    self._write()
                await self._synced()
                return result

        return await self._in_time(done())

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._budget):
                return await work
        except TimeoutError:
            raise StoreUnavailableError(f"queues did not answer within {self._budget:g} s") from None

    async def _synced(self) -> None:
        """All that was done up to now is on the disk."""
        if self._last is not None:
            await asyncio.shield(self._last)

    def _write(self, *, everything: bool = False) -> None:
        """Give what has changed to the next batch."""
        changed = [*self._changed]
        self._changed.clear()
        rows: dict[bytes, bytes | None] = {}
        for one in changed:
            rows |= self._dying_rows(one) if isinstance(one, Shard) else self._window_rows(one, everything=everything)
        if rows:
            self._submit(rows)

    def _submit(self, rows: Mapping[bytes, bytes | None]) -> None:
        try:
            future = self._table.write(rows)
        except StoreUnavailableError:
            self._table.lost()  # memory has it, and the disk will never
            raise
        self._last = future

        def written(_: object) -> None:
            if self._last is future:
                self._last = None

        future.add_done_callback(written)

    def _window_rows(self, source: QueueSource, *, everything: bool) -> Mapping[bytes, bytes | None]:
        window, before = self._memory.windows.get(source), self._kept.get(source)
        after = None if window is None else window.memoir()
        if before is not None and after is not None and not everything and _is_about_askers(before, after):
            self._asked.add(source)
            return {}
        self._asked.discard(source)
        if after is None:
            self._kept.pop(source, None)
        else:
            self._kept[source] = after
        return window_rows(source, before, after)

    def _dying_rows(self, shard: Shard) -> Mapping[bytes, bytes | None]:
        cemetery, known = self._memory.cemeteries[shard], self._dying[shard]
        rows: dict[bytes, bytes | None] = {}
        first = cemetery.entries[0].number if cemetery.entries else cemetery.last + 1
        while known and known[0] < first:
            rows[dying_key(shard, known.popleft())] = None
        last = known[-1] if known else 0
        for one in reversed(cemetery.entries):
            if one.number <= last:
                break
            key, row = dying_row(shard, one)
            rows[key] = row
        known.extend(one.number for one in cemetery.entries if one.number > last)
        key, row = cemetery_row(shard, cemetery)
        if self._abouts.get(shard) != row:
            self._abouts[shard] = rows[key] = row
        return rows

    def _load(self, rows: Mapping[bytes, bytes]) -> None:
        kept = read_rows(rows)
        latest = max((one.latest for one in kept.windows.values()), default=0)
        memory = MemoryQueues(self._clock, self._new_life, self._changed.setdefault, latest)
        memory.windows.update((source, QueueWindow.of(memoir)) for source, memoir in kept.windows.items())
        memory.cemeteries.update(kept.cemeteries)
        self._kept: dict[QueueSource, WindowMemoir] = dict(kept.windows)
        self._dying: defaultdict[Shard, deque[int]] = defaultdict(deque)
        for shard, cemetery in kept.cemeteries.items():
            self._dying[shard].extend(one.number for one in cemetery.entries)
        self._abouts = {shard: cemetery_row(shard, one)[1] for shard, one in kept.cemeteries.items()}
        self._changed.clear()
        self._asked.clear()
        self._memory, self._declared = memory, MemoryDeclared(kept.version, kept.documents)


def _is_about_askers(before: WindowMemoir, after: WindowMemoir) -> bool:
    """True if they differ only in who asked, and not by much."""
    if after.facts.asked - before.facts.asked >= ASKED_US:
        return False
    return replace(before, facts=_without_askers(before.facts)) == replace(after, facts=_without_askers(after.facts))


def _without_askers(facts: WindowFacts) -> WindowFacts:
    return replace(facts, holder="", held_at=0, asked=0, consumers=())
