"""Lends events to consumers of this node, and settles them: what many ask for at the same time goes as one call.

A consumer that finds nothing waits here. Hints of the store wake it, and a look each second is the net. A source that
had nothing is not asked before that either, as a queue has several, and most hints are about one; nor before something
comes back in it: with each answer the store says when the next loan runs out, or a retry is due.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.core.clock import Clock
from app.core.errors import CapacityError, QueueNotFoundError, StoreUnavailableError
from app.core.events.event import Event, Position
from app.core.queues.hints import QueueHint
from app.core.queues.letters import read_letter
from app.core.queues.loans import HELD, Loan, LoanToken, LoanWish, QueueSource, SettleHow, Settlement
from app.core.queues.model import DeclaredQueue
from app.queues.originals import Originals
from app.queues.settler import Settler
from app.queues.sources import QueueSources
from app.runtime.telemetry import Counters
from app.store.queues import QueueStore, TakeCall

LOOK_SECONDS: Final = 1.0
"""The time between two looks of somebody who waits, though nobody hints."""
SOONEST_SECONDS: Final = 0.01
"""The shortest time after which a taker looks where something comes back: a thousand retries are no thousand looks."""
ANNOUNCED_SECONDS: Final = 1.0
"""The time after which the store is told again that a consumer asks."""
MOST_WAITING: Final = 256
"""Consumers of one queue that wait on this node."""
MOST_CONSUMERS: Final = 10_000
"""Consumers that wait on this node."""
MOST_KNOWN: Final = 10_000
"""Consumers of which this node knows when they were announced."""


class QueueMessage(NamedTuple):
    """An event that was lent: by which token it is settled, how often it was lent with this time, and until when."""

    token: LoanToken
    delivery: int
    until: Position
    event: Event
    database: str


@dataclass(slots=True)
class _WaitingConsumer:
    """A consumer that waits here."""

    most: int
    consumer: str
    answer: asyncio.Future[list[tuple[QueueSource, Loan]]]
    lent: list[tuple[QueueSource, Loan]] = field(default_factory=list)
    looked: bool = False
    late: bool = False
    """Its time is over; it gets what comes of the look that is under way."""
    refused: bool = False
    """Another consumer holds the queue."""

    @property
    def left(self) -> int:
        """Return how many more. Events that failed before come alone, so that they take no others with them."""
        if self.refused or any(loan.deliveries for _, loan in self.lent):
            return 0
        return self.most - sum(len(loan.references) for _, loan in self.lent)


class _TakerDesk:
    """The desk of those who wait for one queue, and what serves them. It stays when they go: they come again."""

    def __init__(self) -> None:
        self.askers: list[_WaitingConsumer] = []
        self.takes = 0
        """The takers that were not answered yet; one for whom the store is asked is not among the `askers`."""
        self.woken = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.first = 0
        self.dry: set[QueueSource] = set()
        """Sources that had not enough for all when they were asked last, and of which nobody has hinted since."""
        self.due: dict[QueueSource, float] = {}
        """The instants at which something comes back in them, a loan that runs out or a retry, as far as is known."""
        self.look_at = 0.0
        """The instant at which sources are asked all the same, by the clock of the loop, as hints may be lost."""

    @property
    def busy(self) -> bool:
        """True while somebody is served."""
        return self.task is not None and not self.task.done()

    def look(self, now: float) -> None:
        """Forget which sources are dry once a second, and of each one when something comes back in it."""
        if now >= self.look_at:
            self.dry.clear()
            self.look_at = now + LOOK_SECONDS
        self.dry.difference_update([source for source, at in self.due.items() if at <= now])

    @property
    def next_look(self) -> float:
        """Return when somebody who waits looks, though nobody hints."""
        return min(self.look_at, *self.due.values()) if self.due else self.look_at

    def answered(self, source: QueueSource, due: int | None, now: float) -> None:
        """Note when something comes back in a source, which has just said after how many µs."""
        self.due.pop(source, None)
        if due is not None:
            self.due[source] = now + max(SOONEST_SECONDS, due / 1_000_000)


class QueueTaker:
    """`by_id` gives a queue as it is declared, or None; `new_secret` names the calls of this node."""

    def __init__(
        self,
        *,
        store: QueueStore,
        sources: QueueSources,
        originals: Originals,
        settler: Settler,
        by_id: Callable[[str], DeclaredQueue | None],
        node_id: str,
        new_secret: Callable[[], str],
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._store = store
        self._sources = sources
        self._originals = originals
        self._settler = settler
        self._by_id = by_id
        self._node_id = node_id
        self._calls = f"{new_secret()}-"
        self._number = 0
        self._clock = clock
        self._counters = counters
        self._desks: dict[str, _TakerDesk] = {}
        self._dismissed = False
        self._announced: dict[tuple[QueueSource, str], float] = {}

    def wake(self, hint: QueueHint) -> None:
        """Let those who wait look where something may be ready."""
        for one in [hint.queue_id] if hint.queue_id else list(self._desks):
            desk = self._desks.get(one)
            if desk is None:
                continue
            desk.dry = {source for source in desk.dry if not hint.is_about(source)}
            desk.woken.set()
            if not desk.busy:
                self._clear_if_gone(one)

    def _clear_if_gone(self, queue_id: str) -> None:
        if self._by_id(queue_id) is None:
            self._desks.pop(queue_id, None)

    @property
    def waiting(self) -> int:
        """Return how many wait here."""
        return sum(one.takes for one in self._desks.values())

    def dismiss(self) -> None:
        """Let nobody wait any more; whoever comes gets what is there, or nothing."""
        self._dismissed = True
        for desk in self._desks.values():
            for one in tuple(desk.askers):
                self._send_away(desk, one)
            desk.woken.set()

    async def close(self) -> None:
        """Send all away."""
        for desk in self._desks.values():
            if desk.task is not None:
                desk.task.cancel()
        await asyncio.gather(*(one.task for one in self._desks.values() if one.task), return_exceptions=True)

    async def take(
        self, queue: DeclaredQueue, most: int, consumer: str, seconds: float, most_bytes: int
    ) -> list[QueueMessage]:
        """Up to so many events, at once or after so many seconds; none when there is nothing to lend.

        A caller that is cancelled, or that gets an error, was lent nothing. CapacityError, StoreUnavailableError,
        QueueNotFoundError.
        """
        desk = self._desks.setdefault(queue.id, _TakerDesk())
        if not seconds:
            desk.dry.clear()  # who does not wait is told what the store says, and not what is remembered here
        if desk.takes >= MOST_WAITING:
            raise CapacityError(f"{MOST_WAITING} consumers wait for queue {queue.name!a} on this node already")
        if self.waiting >= MOST_CONSUMERS:
            raise CapacityError(f"{MOST_CONSUMERS} consumers wait on this node already")
        asker = _WaitingConsumer(most, consumer, asyncio.get_running_loop().create_future())
        desk.askers.append(asker)
        desk.woken.set()
        if not desk.busy:
            desk.task = asyncio.create_task(self._serve(queue.id, desk), name=f"taker of {queue.name}")
        timer = asyncio.get_running_loop().call_later(0 if self._dismissed else seconds, self._send_away, desk, asker)
        desk.takes += 1
        try:
            return await self._messages(queue, await asker.answer, most_bytes)
        except BaseException:
            if asker.answer.done() and not asker.answer.cancelled() and asker.answer.exception() is None:
                self._give_back(queue, asker.answer.result())
            raise
        finally:
            timer.cancel()
            desk.takes -= 1
            if asker in desk.askers:
                desk.askers.remove(asker)

    def _send_away(self, desk: _TakerDesk, asker: _WaitingConsumer) -> None:
        asker.late = True
        if asker.looked and asker in desk.askers and not asker.answer.done():
            desk.askers.remove(asker)
            asker.answer.set_result([])

    async def _serve(self, queue_id: str, desk: _TakerDesk) -> None:
        try:
            while desk.askers:
                desk.woken.clear()
                queue = self._by_id(queue_id)
                if queue is None:
                    raise QueueNotFoundError("the queue was deleted")  # noqa: TRY301 - all that fails ends those who wait
                desk.look(asyncio.get_running_loop().time())
                asked, desk.askers = desk.askers, []
                await self._ask(queue, desk, asked)
                if desk.askers:
                    await self._pause(desk)
        except Exception as error:  # noqa: BLE001 - whoever waits is told of it
            for one in desk.askers:
                if not one.answer.done():
                    one.answer.set_exception(error)
        finally:
            for one in desk.askers:
                if not one.answer.done():
                    one.answer.set_result([])
            desk.askers.clear()
            self._clear_if_gone(queue_id)

    @staticmethod
    async def _pause(desk: _TakerDesk) -> None:
        try:
            async with asyncio.timeout_at(desk.next_look):
                await desk.woken.wait()
        except TimeoutError:
            return

    async def _ask(self, queue: DeclaredQueue, desk: _TakerDesk, asked: Sequence[_WaitingConsumer]) -> None:
        """One look at all sources that are not known to be dry, for all of them; who was lent nothing waits on."""
        waiting = [one for one in asked if not one.answer.done()]
        sources = self._sources.of(queue)
        if queue.options.single:  # the first source decides who it is: one that the queue has whatever its routes
            sources = [sources[-1], *sources[:-1]]
        else:
            desk.first = (desk.first + 1) % len(sources)
            sources = [one for one in (*sources[desk.first :], *sources[: desk.first]) if one not in desk.dry]
        try:
            await self._ask_each(queue, desk, sources, waiting)
        except BaseException as error:
            for one in waiting:
                self._answer(queue, one, error if isinstance(error, Exception) else None)
            raise
        for one in waiting:
            one.looked, one.refused = True, False
            if one.lent or one.late:
                self._answer(queue, one, None)
            else:
                desk.askers.append(one)

    async def _ask_each(
        self,
        queue: DeclaredQueue,
        desk: _TakerDesk,
        sources: Sequence[QueueSource],
        waiting: Sequence[_WaitingConsumer],
    ) -> None:
        """Ask source after source; of a server that is away, one. StoreUnavailableError where all servers are."""
        single, away = queue.options.single, set[str]()
        for source in sources:
            eager = [one for one in waiting if one.left > 0 or (single and not one.refused)]
            if not eager:
                return
            desk.dry.add(source)  # a hint that comes meanwhile takes it off again
            if away and self._store.server_of(source) in away:
                continue
            try:
                if await self._lend(queue, desk, source, eager):
                    desk.dry.discard(source)
            except StoreUnavailableError:
                desk.due.pop(source, None)  # it is asked again with the next look, and not before
                away.add(self._store.server_of(source))
                if (single and source is sources[0]) or away >= set(
                    map(self._store.server_of, self._sources.of(queue))
                ):
                    raise

    def _answer(self, queue: DeclaredQueue, asker: _WaitingConsumer, error: Exception | None) -> None:
        if asker.answer.done():
            self._give_back(queue, asker.lent)
        elif asker.lent or error is None:
            asker.answer.set_result(asker.lent)
        else:
            asker.answer.set_exception(error)

    async def _lend(
        self, queue: DeclaredQueue, desk: _TakerDesk, source: QueueSource, askers: Sequence[_WaitingConsumer]
    ) -> bool:
        """Return whether each of them was lent something, so that there may be more."""
        wishes = [LoanWish(one.left, one.consumer, self._is_to_be_announced(source, one.consumer)) for one in askers]
        self._number += 1
        call = TakeCall(self._node_id, f"{self._calls}{self._number}")
        loans, due = await self._store.take(source, queue.options.rules, wishes, call)
        desk.answered(source, due, asyncio.get_running_loop().time())
        for asker, loan in zip(askers, loans, strict=True):
            if loan is HELD:
                asker.refused = True
            elif loan is not None:
                asker.lent.append((source, loan))
                self._counters["queues.lent_again" if loan.deliveries else "queues.lent"] += len(loan.references)
        return None not in loans

    def _is_to_be_announced(self, source: QueueSource, consumer: str) -> bool:
        now, known = self._clock.monotonic(), (source, consumer)
        if now - self._announced.get(known, -ANNOUNCED_SECONDS) < ANNOUNCED_SECONDS:
            return False
        if len(self._announced) >= MOST_KNOWN:
            self._announced.clear()
        self._announced[known] = now
        return True

    async def _messages(
        self, queue: DeclaredQueue, lent: Sequence[tuple[QueueSource, Loan]], most_bytes: int
    ) -> list[QueueMessage]:
        """Return what was lent, with its events; settle those that are gone, give those back that are too much."""
        messages: list[QueueMessage] = []
        room = most_bytes
        for source, loan in lent:
            found = await self._originals.pick(source.shard, [one.position for one in loan.references])
            gone, surplus = list[int](), list[int]()
            for index, event in enumerate(found):
                if event is None:
                    gone.append(index)
                    continue
                room -= len(event.entry.value)
                if room < 0 and messages:
                    surplus.append(index)
                    continue
                token = LoanToken(loan.life, source.shard, source.dead, loan.number, index)
                messages.append(_message(token, loan, source, event))
            self._counters["queues.expired"] += len(gone)
            for how, indexes in ((SettleHow.EXPIRED, gone), (SettleHow.RELEASE, surplus)):
                if indexes:
                    await self._settler.settle(queue, source, loan.life, [Settlement(loan.number, how, tuple(indexes))])
        return messages

    def _give_back(self, queue: DeclaredQueue, lent: Sequence[tuple[QueueSource, Loan]]) -> None:
        """Let somebody else have it at once. If that fails, the deadline does it."""
        by_life: defaultdict[tuple[QueueSource, str], list[Settlement]] = defaultdict(list)
        for source, loan in lent:
            by_life[source, loan.life].append(Settlement(loan.number, SettleHow.RELEASE))
        for (source, life), said in by_life.items():
            self._settler.settle_soon(queue, source, life, said)


def _message(token: LoanToken, loan: Loan, source: QueueSource, event: Event) -> QueueMessage:
    """An event as a consumer gets it; of a dead letter that is the original."""
    database = source.shard.database
    letter = read_letter(event) if source.dead else None
    if letter is not None:
        event, database = letter.original, str(letter.about["origin"].get("database", database))
    return QueueMessage(token, loan.deliveries + 1, loan.until, event, database)
