"""Queues of one node alone, in this process's memory. Whatever is to outlive the process is told to a journal."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from app.core.clock import Clock
from app.core.events.event import Position, Shard
from app.core.queues.hints import QueueHint, hints_of
from app.core.queues.loans import (
    HELD,
    MOST_DYING,
    DatedGroup,
    Dying,
    Fed,
    LendingRules,
    LoanWish,
    QueueSource,
    Reference,
    ReferenceGroup,
    Settled,
    Settlement,
    SourceState,
)
from app.core.queues.times import QueueStoreClock
from app.core.queues.window import Bury, QueueWindow
from app.runtime.telemetry import Fill
from app.store.declared import Declarations, DocumentChange
from app.store.queues import TakeCall, Taken

QueueChanged = Callable[[QueueSource | Shard], None]
"""Called when a window, or what is dying in a shard, may have changed in a way that is to outlive the process."""


def tell_nobody(_changed: QueueSource | Shard) -> None:
    """Tell nobody, where nothing outlives the process."""


class Cemetery:
    """The events that are dying in one shard, up to the number `last`."""

    def __init__(self, entries: Iterable[Dying] = (), sealed: int = 0, last: int = 0) -> None:
        self.entries: Final = deque(entries)
        self.sealed = sealed
        self.last = last

    def bury(
        self, source: QueueSource, now: Position, deliveries: int, reason: str, consumer: str, one: Reference
    ) -> bool:
        if len(self.entries) >= MOST_DYING:
            return False
        self.last = max(self.last + 1, now)
        self.entries.append(Dying(self.last, source, deliveries, reason, consumer, one))
        return True


class MemoryQueues:
    """`clock` is the engine's; `new_life` makes 8 hexadecimal digits. Calls wait for nothing: each is one step.

    Nobody who sets the clock ends or prolongs a loan: `not_before` is the latest instant that is on record of them.
    """

    def __init__(
        self,
        clock: Clock,
        new_life: Callable[[], str],
        changed: QueueChanged = tell_nobody,
        not_before: Position = 0,
    ) -> None:
        self._clock = QueueStoreClock(clock, not_before)
        self._new_life = new_life
        self._changed = changed
        self.windows: Final[dict[QueueSource, QueueWindow]] = {}
        self.cemeteries: Final[defaultdict[Shard, Cemetery]] = defaultdict(Cemetery)
        self._calls: dict[tuple[QueueSource, str], tuple[str, Taken]] = {}
        self._heard: list[Callable[[QueueHint], None]] = []

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return

    def fills(self) -> dict[str, Fill]:
        return {}

    async def now(self) -> Position:
        return self._clock.time().date

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
        window = self.windows.get(source)
        if window is None:
            window = self.windows[source] = QueueWindow(self._new_life(), start)
        self._changed(source)
        return window.feed(self._clock.time(), expected, fed, groups, most, missed, dated)

    async def take(self, source: QueueSource, rules: LendingRules, wishes: Sequence[LoanWish], call: TakeCall) -> Taken:
        window = self.windows.get(source) or (self._begun(source) if source.dead else None)
        if window is None:
            return Taken([HELD if rules.single else None] * len(wishes))
        number, taken = self._calls.get((source, call.node_id), ("", Taken([])))
        if number != call.number:
            self._changed(source)
            time = self._clock.time()
            loans = window.take(time, rules, wishes, self._bury(source))
            is_short = any(one is None or one is HELD for one in loans)
            taken = Taken(loans, window.due(time) if is_short else None)
            if any(one is not None and one.references for one in loans):
                self._calls[source, call.node_id] = call.number, taken
        return taken

    async def settle(
        self, source: QueueSource, rules: LendingRules, life: str, said: Sequence[Settlement], jitter: int
    ) -> Settled:
        window = self.windows.get(source) or QueueWindow("", 0)
        self._changed(source)
        return window.settle(self._clock.time().now, life, rules, said, jitter, self._bury(source))

    async def dismiss(self, source: QueueSource, consumer: str) -> int:
        window = self.windows.get(source)
        if window is None:
            return 0
        self._changed(source)
        return window.dismiss(consumer)

    async def dying(self, shard: Shard, most: int) -> Sequence[Dying]:
        cemetery = self.cemeteries[shard]
        self._changed(shard)
        cemetery.sealed = cemetery.sealed or min(most, len(cemetery.entries))
        return [cemetery.entries[place] for place in range(cemetery.sealed)]

    async def buried(self, shard: Shard, number: int) -> None:
        cemetery = self.cemeteries[shard]
        self._changed(shard)
        while cemetery.entries and cemetery.entries[0].number <= number:
            cemetery.entries.popleft()
            cemetery.sealed = 0  # not where a node is late, and others are being buried

    async def seek(self, source: QueueSource, fed: Position) -> None:
        self._begun(source).seek(self._new_life(), fed)

    async def redrive(self, source: QueueSource, until: Position) -> None:
        window = self._begun(source)
        window.until = max(window.until, until)

    async def states(self, sources: Sequence[QueueSource]) -> Sequence[SourceState | None]:
        found = [self.windows.get(one) for one in sources]
        time = self._clock.time()
        return [None if one is None else one.state(time) for one in found]

    async def lent_until(self, sources: Sequence[QueueSource]) -> Position:
        time, windows = self._clock.time(), [self.windows[one] for one in sources if one in self.windows]
        return max((one.lent_until(time) for one in windows), default=0)

    async def forget(self, sources: Sequence[QueueSource]) -> None:
        for one in sources:
            self._changed(one)
            self.windows.pop(one, None)
        forgotten = set(sources)
        self._calls = {place: call for place, call in self._calls.items() if place[0] not in forgotten}

    async def hint(self, sources: Iterable[QueueSource]) -> None:
        for one in hints_of(sources):
            for heard in self._heard:
                heard(one)

    def hear(self, heard: Callable[[QueueHint], None]) -> None:
        self._heard.append(heard)

    def _begun(self, source: QueueSource) -> QueueWindow:
        self._changed(source)
        window = self.windows.get(source)
        if window is None:
            window = self.windows[source] = QueueWindow(self._new_life(), 0)
        return window

    def _bury(self, source: QueueSource) -> Bury:
        cemetery, now = self.cemeteries[source.shard], self._clock.time().now

        def bury(deliveries: int, reason: str, consumer: str, reference: Reference) -> bool:
            self._changed(source.shard)
            return cemetery.bury(source, now, deliveries, reason, consumer, reference)

        return bury


class MemoryDeclared:
    """The declarations, as long as the process lives."""

    def __init__(self, version: int = 0, documents: Mapping[str, bytes] | None = None) -> None:
        self._version = version
        self._documents = dict(documents or {})

    async def version(self) -> int:
        return self._version

    async def read(self, since: int = -1) -> Declarations:
        if since == self._version:
            return Declarations(self._version, {}, whole=False)
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
