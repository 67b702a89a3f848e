"""The queues of a node: all their parts, as one life, and what the API asks of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Final

import structlog

from app.core.errors import HomingError, QueuesOffError, StoreUnavailableError
from app.core.events.event import BEGINNING, Position
from app.core.queues.exchanges import DeclaredExchange, Kind
from app.core.queues.hints import QueueHint, hints_of
from app.core.queues.loans import LoanToken, QueueSource, SettleHow
from app.core.queues.model import DeclaredQueue, QueueOptions, QueueRoute
from app.events.plane import EventPlane
from app.kernel import Kernel
from app.plane import Plane
from app.queues.book import QueueBook
from app.queues.burials import Burials
from app.queues.chores import QueueChores
from app.queues.exchange_publisher import ExchangePublisher
from app.queues.feeder import QueueFeeder
from app.queues.gauges import QueueGauges
from app.queues.missed import MissedEvents
from app.queues.moves import QueueMoves
from app.queues.originals import Originals
from app.queues.settler import Settler, TokenSettlement
from app.queues.shares import QueueShares
from app.queues.sources import QueueSources, TenantOf
from app.queues.stats import QueueStats, stats_in
from app.queues.taker import MOST_CONSUMERS, QueueMessage, QueueTaker
from app.queues.unread import UnreadEvents
from app.queues.unused import UnusedQueues
from app.runtime.services import Service
from app.runtime.tasks import end
from app.runtime.telemetry import Fill
from app.store.queues import QueueStore

LOOK_SECONDS: Final = 0.5
"""A node looks so often at what is declared, though nobody has told of a change, and at who lives."""
MOST_PAUSE_SECONDS: Final = 30.0
"""The time for which it waits at most before it tries again to open the store."""
GAUGE_LOOKS: Final = 10
"""The plane asks after this number of looks how queues stand, for `/metrics`."""
UNUSED_LOOKS: Final = 20
"""The plane looks after this number of looks for queues that nobody uses any more."""

_log = structlog.get_logger(__name__)


class QueuePlane:
    """Calls raise StoreUnavailableError before the store is open, and QueueNotFoundError."""

    def __init__(
        self,
        *,
        store: QueueStore,
        book: QueueBook,
        sources: QueueSources,
        feeders: Sequence[QueueFeeder],
        taker: QueueTaker,
        settler: Settler,
        shares: QueueShares,
        publisher: ExchangePublisher,
        moves: QueueMoves,
        chores: QueueChores,
    ) -> None:
        self.book: Final = book
        self._publisher = publisher
        self._store = store
        self._sources = sources
        self._feeders = feeders
        self._taker = taker
        self._settler = settler
        self._shares = shares
        self._moves = moves
        self._chores = chores
        self._open = False
        self._told = asyncio.Event()
        """Somebody has changed what is declared."""
        self._trouble = "their store is not open yet"
        book.changed.add(self._changed)
        store.hear(self._heard)

    @property
    def plane(self) -> Plane:
        """All of it, as one life."""
        service = Service(
            "queues", self._run, close=self._close, fills=self._fills, gauges=lambda: tuple(self._chores.gauges)
        )
        return Plane(name="queues", services=[service])

    async def now(self) -> Position:
        """Ask the clock of the store, by which instants of queues are."""
        self._check()
        return await self._store.now()

    async def known(self) -> QueueBook:
        """Return what is declared, as it is this moment."""
        self._check()
        await self.book.refresh()
        return self.book

    async def find(self, tenant: str, name: str) -> DeclaredQueue:
        """See `QueueBook.find`."""
        self._check()
        return await self.book.find(tenant, name)

    async def find_exchange(self, tenant: str, name: str) -> DeclaredExchange:
        """See `QueueBook.find_exchange`."""
        self._check()
        return await self.book.find_exchange(tenant, name)

    async def declare(
        self,
        tenant: str,
        name: str,
        given: QueueOptions,
        start: Position | None,
        check: Callable[[DeclaredQueue | None], bool],
    ) -> tuple[DeclaredQueue, bool]:
        """See `QueueBook.declare`. Without a start, or with one that is ahead, it begins now."""
        now = await self.now()
        begin = now if start is None else min(now, max(BEGINNING, start - 1))
        return await self.book.declare(tenant, name, given, begin, now, check)

    async def reroute(
        self,
        queue: DeclaredQueue,
        routes: Sequence[QueueRoute],
        check: Callable[[DeclaredQueue], None],
        *,
        add: bool,
    ) -> DeclaredQueue:
        """See `QueueBook.reroute`. A database that is new to the queue is read from now on."""
        self._check()
        return await self.book.reroute(queue.tenant, queue.name, routes, await self._store.now(), check, add=add)

    async def declare_exchange(self, tenant: str, name: str, kind: Kind) -> tuple[DeclaredExchange, bool]:
        """See `QueueBook.declare_exchange`."""
        self._check()
        return await self.book.declare_exchange(tenant, name, kind, await self._store.now())

    async def delete_exchange(self, tenant: str, name: str) -> None:
        """See `QueueBook.delete_exchange`."""
        self._check()
        await self.book.delete_exchange(tenant, name)

    @property
    def publisher(self) -> ExchangePublisher:
        """The publisher of messages to exchanges."""
        self._check()
        return self._publisher

    async def delete(self, queue: DeclaredQueue, *, if_empty: bool) -> None:
        """See `QueueMoves.delete`."""
        self._check()
        await self._moves.delete(queue, if_empty=if_empty)

    async def take(
        self, queue: DeclaredQueue, most: int, consumer: str, seconds: float, most_bytes: int, *, auto: bool
    ) -> list[QueueMessage]:
        """See `QueueTaker.take`. With `auto`, what is lent is settled at once."""
        self._check()
        messages = await self._taker.take(queue, most, consumer, seconds, most_bytes)
        return await self.settle_at_once(queue, messages) if auto and messages else messages

    async def settle_at_once(self, queue: DeclaredQueue, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """Settle what was lent this moment; return those that others do not have by now."""
        over = set(await self.settle(queue, [TokenSettlement(one.token, SettleHow.DONE) for one in messages]))
        return [one for one in messages if one.token not in over]

    async def settle(self, queue: DeclaredQueue, said: Sequence[TokenSettlement]) -> list[LoanToken]:
        """Settle what was lent; those that were over, or are of another queue."""
        self._check()
        return await self._settler.settle_tokens(queue, self._sources.of(queue), said)

    async def is_full(self, queue: DeclaredQueue) -> bool:
        """True if consumers have as much of it as a window takes, so that nothing is lent until they settle."""
        states = await self._store.states(self._sources.of(queue))
        return any(one is not None and one.lent >= queue.options.rules.window for one in states)

    async def send_away(self, queue: DeclaredQueue, consumer: str) -> int:
        """Give to others what a consumer was lent, as if it had given it back; how many events that are."""
        self._check()
        sources = self._sources.of(queue)
        counts = await asyncio.gather(*(self._store.dismiss(one, consumer) for one in sources))
        if any(counts) or queue.options.single:
            await self._store.hint(sources)
        return sum(counts)

    def dismiss(self) -> None:
        """Send those away who wait here, as the node is about to stop."""
        self._taker.dismiss()

    @property
    def moves(self) -> QueueMoves:
        """The moves of queues to other places of the log."""
        self._check()
        return self._moves

    async def stats(self, queue: DeclaredQueue) -> QueueStats:
        """Return how it stands."""
        self._check()
        return await stats_in(self._store, self._sources.of(queue))

    async def _run(self) -> None:
        await self._start()
        tasks = [asyncio.create_task(one.run(), name="queue feeder") for one in self._feeders]
        tasks.append(asyncio.create_task(self._learn(), name="queue declarations"))
        looks = 0
        try:
            while True:
                looks += 1
                try:
                    await self._look(looks)
                except HomingError as error:
                    _log.debug("queue_look_skipped", reason=str(error))
                for one in tasks:
                    if one.done():
                        one.result()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await end(tasks)

    async def _learn(self) -> None:
        """Read what is declared as soon as somebody tells of a change; a look finds it where that was lost."""
        while True:
            await self._told.wait()
            self._told.clear()
            try:
                await self.book.refresh()
            except HomingError as error:
                _log.debug("queue_look_skipped", reason=str(error))

    async def _start(self) -> None:
        pause = LOOK_SECONDS
        while not self._open:
            try:
                await self._store.start()
            except HomingError as error:
                self._trouble = str(error)
                _log.warning("queues_not_open", reason=self._trouble)
                await asyncio.sleep(pause)
                pause = min(2 * pause, MOST_PAUSE_SECONDS)
            else:
                self._open = True

    async def _look(self, looks: int) -> None:
        await self.book.refresh()
        await self._shares.refresh()
        if looks % GAUGE_LOOKS == 1:
            await self._chores.gauges.look(self.book.all, await self._store.now())
        if not self.book.all:
            return
        if looks % UNUSED_LOOKS == 0:
            for queue in await self._chores.unused.look(self.book.all):
                _log.info("queue_ended", queue=queue.name, tenant=queue.tenant, reason="nobody took from it")
                await self.delete(queue, if_empty=False)
        await self._chores.burials.bury_all(self._shares.shards())

    async def _close(self) -> None:
        self._open = False
        await self._taker.close()
        await self._settler.close()
        await self._store.close()

    def _fills(self) -> dict[str, Fill]:
        return {"queue_consumers": Fill(self._taker.waiting, MOST_CONSUMERS), **self._store.fills()}

    def _changed(self, queue_ids: Collection[str]) -> None:
        for one in self._feeders:
            one.changed()
        for queue_id in queue_ids:
            self._taker.wake(QueueHint(queue_id))

    def _heard(self, hint: QueueHint) -> None:
        if hint.is_about_log:
            for one in self._feeders:
                one.appended(hint.sources)
            return
        if hint.is_about_declarations:
            self._told.set()
            return
        if not hint.queue_id:
            self.book.doubt()
        self._taker.wake(hint)
        for one in self._feeders:
            one.kick(hint.queue_id)

    def _check(self) -> None:
        if not self._open:
            raise StoreUnavailableError(f"queues cannot be used now: {self._trouble}")


def needed_queues(plane: QueuePlane | None) -> QueuePlane:
    """The queues of the node; QueuesOffError where there are none."""
    if plane is None:
        raise QueuesOffError("this node keeps no queues: they need HOMING_EVENTS_URL")
    return plane


def open_queues(kernel: Kernel, events: EventPlane | None, tenant_of: TenantOf) -> QueuePlane | None:
    """Queues over the events that are kept; None where none are."""
    engine = kernel.adapters.events
    if events is None or engine is None:
        return None
    log, store, counters = events.store, engine.queues.store, kernel.counters

    async def live() -> Sequence[str]:
        return await kernel.cluster.knowing("queues")  # what falls to a node of 0.2.0 would be fed by nobody

    def settled(queue: DeclaredQueue, source: QueueSource) -> None:
        for one in feeders:
            one.kick(queue.id)
        if queue.options.rules.ordered:  # what waited behind a device is ready
            for hint in hints_of([source]):
                taker.wake(hint)

    book = QueueBook(engine.queues.declared, [one.name for one in events.plan.databases], kernel.adapters.new_ulid)
    sources, originals = QueueSources(events.plan, tenant_of), Originals(log)
    shares = QueueShares(events.plan, kernel.info.node_id, live)
    feeders = _feeders(kernel, events, store, book, sources, originals, shares, hinted=engine.queues.hinted)
    settler = Settler(store, settled, Random(), counters)
    taker = QueueTaker(
        store=store,
        sources=sources,
        originals=originals,
        settler=settler,
        by_id=book.by_id,
        node_id=kernel.info.node_id,
        new_secret=kernel.adapters.new_secret,
        clock=kernel.clock,
        counters=counters,
    )
    unread = UnreadEvents(log=log, store=store, sources=sources)
    missed = MissedEvents(unread=unread, store=store, sources=sources, queues=lambda: book.all, counters=counters)
    events.keeper.dropping.append(missed.count)
    burials = Burials(log=log, store=store, sources=sources, originals=originals, book=book, counters=counters)
    return QueuePlane(
        store=store,
        book=book,
        sources=sources,
        feeders=feeders,
        taker=taker,
        settler=settler,
        shares=shares,
        publisher=ExchangePublisher(book, events.publisher, store.now),
        moves=QueueMoves(log=log, store=store, sources=sources, book=book, unread=unread),
        chores=_chores(kernel, burials, store, sources, shares),
    )


def _feeders(
    kernel: Kernel,
    events: EventPlane,
    store: QueueStore,
    book: QueueBook,
    sources: QueueSources,
    originals: Originals,
    shares: QueueShares,
    *,
    hinted: bool,
) -> list[QueueFeeder]:
    return [
        QueueFeeder(
            one.name,
            log=events.store,
            store=store,
            sources=sources,
            originals=originals,
            book=book,
            mine=shares.mine,
            hinted=hinted,
            clock=kernel.clock,
            counters=kernel.counters,
        )
        for one in events.plan.databases
    ]


def _chores(
    kernel: Kernel, burials: Burials, store: QueueStore, sources: QueueSources, shares: QueueShares
) -> QueueChores:
    def mine(queue: DeclaredQueue) -> bool:
        return shares.mine_by_name(queue.id)

    return QueueChores(
        burials=burials,
        unused=UnusedQueues(store=store, sources=sources, mine=mine, clock=kernel.clock),
        gauges=QueueGauges(store, sources, mine, kernel.counters),
    )
