"""Queues of one node alone, in this process's memory. It promises nothing across the end of the process."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final

from app.core.clock import Clock
from app.core.events.event import Position, Shard
from app.core.queues.loans import (
    HELD,
    MOST_DYING,
    Dying,
    Fed,
    LendingRules,
    Loan,
    LoanWish,
    QueueSource,
    Reference,
    ReferenceGroup,
    Settled,
    Settlement,
    SourceState,
)
from app.core.queues.window import Bury, QueueWindow
from app.runtime.telemetry import Fill
from app.store.declared import Declarations, DocumentChange
from app.store.queues import TakeCall


class _Cemetery:
    """What is dying in one shard."""

    def __init__(self) -> None:
        self.entries: Final = deque[Dying]()
        self.sealed = 0
        self._last = 0

    def bury(
        self, source: QueueSource, now: Position, deliveries: int, reason: str, consumer: str, one: Reference
    ) -> bool:
        if len(self.entries) >= MOST_DYING:
            return False
        self._last = max(self._last + 1, now)
        self.entries.append(Dying(self._last, source, deliveries, reason, consumer, one))
        return True


class MemoryQueues:
    """`clock` is the engine's; `new_life` makes 8 hexadecimal digits."""

    def __init__(self, clock: Clock, new_life: Callable[[], str]) -> None:
        self._clock = clock
        self._new_life = new_life
        self._windows: dict[QueueSource, QueueWindow] = {}
        self.cemeteries: Final[defaultdict[Shard, _Cemetery]] = defaultdict(_Cemetery)
        self._calls: dict[tuple[QueueSource, str], tuple[str, list[Loan | None]]] = {}
        self._heard: list[Callable[[str], None]] = []

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return

    def fills(self) -> dict[str, Fill]:
        return {}

    async def now(self) -> Position:
        return self._now()

    async def feed(
        self,
        source: QueueSource,
        start: Position,
        expected: Position,
        fed: Position,
        groups: Sequence[ReferenceGroup],
        most: int,
    ) -> Fed:
        window = self._windows.get(source)
        if window is None:
            window = self._windows[source] = QueueWindow(self._new_life(), start)
        return window.feed(expected, fed, groups, most)

    async def take(
        self, source: QueueSource, rules: LendingRules, wishes: Sequence[LoanWish], call: TakeCall
    ) -> list[Loan | None]:
        window = self._windows.get(source)
        if window is None:
            return [HELD if rules.single else None] * len(wishes)
        number, loans = self._calls.get((source, call.node_id), ("", []))
        if number != call.number:
            loans = window.take(self._now(), rules, wishes, self._bury(source))
            if any(one is not None and one.references for one in loans):
                self._calls[source, call.node_id] = call.number, loans
        return loans

    async def settle(
        self, source: QueueSource, rules: LendingRules, life: str, said: Sequence[Settlement], jitter: int
    ) -> Settled:
        window = self._windows.get(source) or QueueWindow("", 0)
        return window.settle(self._now(), life, rules, said, jitter, self._bury(source))

    async def dying(self, shard: Shard, most: int) -> Sequence[Dying]:
        cemetery = self.cemeteries[shard]
        cemetery.sealed = cemetery.sealed or min(most, len(cemetery.entries))
        return [cemetery.entries[place] for place in range(cemetery.sealed)]

    async def buried(self, shard: Shard, number: int) -> None:
        cemetery = self.cemeteries[shard]
        cemetery.sealed = 0
        while cemetery.entries and cemetery.entries[0].number <= number:
            cemetery.entries.popleft()

    async def seek(self, source: QueueSource, fed: Position) -> None:
        self._begun(source).seek(self._new_life(), fed)

    async def redrive(self, source: QueueSource, until: Position) -> None:
        self._begun(source).until = until

    async def states(self, sources: Sequence[QueueSource]) -> Sequence[SourceState | None]:
        found = [self._windows.get(one) for one in sources]
        return [None if one is None else one.state(self._now()) for one in found]

    async def forget(self, sources: Sequence[QueueSource]) -> None:
        for one in sources:
            self._windows.pop(one, None)

    async def hint(self, queue_ids: Sequence[str]) -> None:
        for heard in self._heard:
            for one in queue_ids:
                heard(one)

    def hear(self, heard: Callable[[str], None]) -> None:
        self._heard.append(heard)

    def _begun(self, source: QueueSource) -> QueueWindow:
        window = self._windows.get(source)
        if window is None:
            window = self._windows[source] = QueueWindow(self._new_life(), 0)
        return window

    def _bury(self, source: QueueSource) -> Bury:
        cemetery, now = self.cemeteries[source.shard], self._now()

        def bury(deliveries: int, reason: str, consumer: str, reference: Reference) -> bool:
            return cemetery.bury(source, now, deliveries, reason, consumer, reference)

        return bury

    def _now(self) -> Position:
        return round(self._clock.wall() * 1_000_000)


class MemoryDeclared:
    """What is declared, as long as the process lives."""

    def __init__(self) -> None:
        self._version = 0
        self._documents: dict[str, bytes] = {}

    async def version(self) -> int:
        return self._version

    async def read(self) -> Declarations:
        return Declarations(self._version, dict(self._documents))

    async def apply(self, changes: Sequence[DocumentChange], expected: int) -> int | None:
        if expected != self._version:
            return None
        for name, document in changes:
            if document is None:
                self._documents.pop(name, None)
            else:
                self._documents[name] = document
        self._version += 1
        return self._version
