"""A database of one shard, and queues over it, in memory and on a clock that the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any, Final

from app.core.events.event import BEGINNING, Entry, Event, Shard
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.reading import Reading
from app.core.queues.loans import Loan, LoanWish, QueueSource, SourceState
from app.core.queues.model import DeclaredQueue, QueueOptions, TopicRoute, encode_queue
from app.queues.book import QueueBook
from app.queues.burials import Burials
from app.queues.feeder import QueueFeeder
from app.queues.originals import Originals
from app.queues.settler import Settler
from app.queues.sources import QueueSources
from app.queues.taker import QueueTaker
from app.store.declared import DocumentChange
from app.store.events import EventStore
from app.store.memory.events import MemoryEventLog
from app.store.memory.queues import MemoryDeclared, MemoryQueues
from app.store.queues import TakeCall
from tests.unit.assembly import ManualClock

SHARD: Final = Shard("events", 0)
ROUTES: Final = (TopicRoute("events", "alarm"),)


class ListedQueues:
    """A book of these queues, without a store behind it."""

    def __init__(self, queues: Sequence[DeclaredQueue]) -> None:
        self._queues = queues

    @property
    def all(self) -> Sequence[DeclaredQueue]:
        return self._queues

    def is_gone(self, queue_id: str) -> bool:
        return all(one.id != queue_id for one in self._queues)


class QueueStage:
    """One queue, called alarms, which reads from the beginning."""

    hinted = False
    """The log tells that something came, and nobody looks at it all the time."""
    shards = 1
    databases: Sequence[str] = ("events",)
    other_log: EventStore | None = None
    """The log that the queue reads in place of the one in memory."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.counters = Counter[str]()
        self.plan = Plan([NamedDatabase(one, timedelta(days=1)) for one in self.databases], [], self.shards)
        self.log = MemoryEventLog(self.plan.databases, self.clock)
        lives = count(1)
        self.store = MemoryQueues(self.clock, lambda: f"{next(lives):08x}")
        self.declared = MemoryDeclared()
        self.sources = QueueSources(self.plan, lambda _: "")
        self.originals = Originals(self.read_from)
        given = QueueOptions(routes=ROUTES, **options)
        self.queue = DeclaredQueue("01QUEUE", "", "alarms", given, {"events": BEGINNING}, 0)
        self.queues = [self.queue]
        self.source = QueueSource(self.queue.id, SHARD)
        self.feeder = self.new_feeder()
        self._calls = count(1)

    @property
    def read_from(self) -> EventStore:
        """The log that the queue reads."""
        return self.other_log or self.log

    def new_feeder(self, book: QueueBook | None = None) -> QueueFeeder:
        return QueueFeeder(
            "events",
            log=self.read_from,
            store=self.store,
            sources=self.sources,
            originals=self.originals,
            book=book or ListedQueues(self.queues),
            mine=lambda _: True,
            hinted=self.hinted,
            clock=self.clock,
            counters=self.counters,
        )

    def new_book(self) -> QueueBook:
        return QueueBook(self.declared, ["events"], lambda: "01OTHER")

    def new_burials(self, book: QueueBook) -> Burials:
        return Burials(
            log=self.log,
            store=self.store,
            sources=self.sources,
            originals=self.originals,
            book=book,
            counters=self.counters,
        )

    def new_taker(self) -> QueueTaker:
        """On another node, which has read nothing yet."""
        return QueueTaker(
            store=self.store,
            sources=self.sources,
            originals=Originals(self.read_from),
            settler=Settler(self.store, lambda *_: None, Random(1), self.counters),
            by_id=lambda _: self.queue,
            node_id="n2",
            new_secret=lambda: f"secret{next(self._calls)}",
            clock=self.clock,
            counters=self.counters,
        )

    async def write(self, document: bytes | None = None) -> None:
        """Put the queue on record, as it is or as this document says."""
        change = DocumentChange(self.queue.document, document or encode_queue(self.queue))
        assert await self.declared.apply([change], await self.declared.version())

    def change(self, **options: Any) -> None:
        """Declare the queue otherwise."""
        self.queues[:] = [replace(self.queue, options=replace(self.queue.options, **options))]
        self.feeder.changed()

    async def say(self, times: int = 1, topic: str = "alarm") -> None:
        for _ in range(times):
            await self.log.append(SHARD, [Entry(topic, b"1")])

    async def size(self) -> int:
        """Return how many are in the window."""
        state = await self.state()
        return 0 if state is None else state.size

    async def state(self) -> SourceState | None:
        (found,) = await self.store.states([self.source])
        return found

    async def take(self, consumer: str = "w1", most: int = 10) -> Loan | None:
        call = TakeCall("n1", str(next(self._calls)))
        rules = self.queues[0].options.rules
        (loan,) = (await self.store.take(self.source, rules, [LoanWish(most, consumer)], call)).loans
        return loan

    async def letters(self) -> list[Event]:
        found = await self.log.read(SHARD, Reading(self.queue.dead_topic), 100)
        return list(found.events)
