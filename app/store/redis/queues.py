"""Queues in the Redis of the event log, over a connection of their own: no command or append waits behind them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from app.core.clock import Clock
from app.core.errors import UnavailableError
from app.core.events.event import Position, Shard
from app.core.queues import keys
from app.core.queues.hints import CHANGED_DECLARATIONS, QueueHint, hint_text, hints_of, read_hints
from app.core.queues.loans import (
    CONSUMER_US,
    HELD,
    NOTED_US,
    DatedGroup,
    Dying,
    Fed,
    LendingRules,
    Loan,
    LoanWish,
    QueueSource,
    ReferenceGroup,
    Settled,
    Settlement,
    SourceState,
    pack_references,
    unpack_references,
)
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.tasks import end
from app.runtime.telemetry import Fill
from app.store.declared import Declarations, DocumentChange
from app.store.queues import TakeCall, Taken
from app.store.redis.driver.lane import Argument
from app.store.redis.driver.listener import HEARTBEAT, HEARTBEAT_SECONDS, Listener
from app.store.redis.driver.scripts import (
    QUEUE_DECLARE,
    QUEUE_DECLARED,
    QUEUE_DISMISS,
    QUEUE_DYING,
    QUEUE_FEED,
    QUEUE_SCRIPTS,
    QUEUE_SEEK,
    QUEUE_SETTLE,
    QUEUE_TAKE,
)
from app.store.redis.events.calls import EventCalls, parsing, unreadable

_STATE: Final = (
    *(
        "fed",
        "until",
        "size",
        "lent",
        "later",
        "dated",
        "parked",
        "asked",
        "done",
        "retried",
        "dead",
        "expired",
        "missed",
    ),
    *("delivered", "again", "first"),
)
_SIZE, _ASKED = _STATE.index("size"), _STATE.index("asked")


class RedisQueues:
    """Both ports, `QueueStore` and `Declared`. `new_life` makes 8 hexadecimal digits; `budget` bounds each call."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        counters: Counter[str],
        new_life: Callable[[], str],
        budget: timedelta = timedelta(seconds=2),
        terms: RedisTerms = NO_TERMS,
    ) -> None:
        self._calls = EventCalls(url, counters, budget.total_seconds(), QUEUE_SCRIPTS, terms, name="homing-queues")
        self._listener = Listener(
            url,
            name="homing-hints",
            clock=clock,
            counters=counters,
            heard=self._hear,
            resubscribed=lambda: self._hear(b""),
            terms=terms,
        )
        self._new_life = new_life
        self._heard: list[Callable[[QueueHint], None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """As the port says."""
        await self._calls.start()
        await self.version()  # a user of Redis without the rights is refused here, and not again and again below
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._listener.run(keys.HINTS), name="queue hints"),
                asyncio.create_task(self._beat(), name="heartbeat of queue hints"),
            ]

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        try:
            await end(tasks)
        finally:
            await self._calls.close()

    def fills(self) -> dict[str, Fill]:
        return {"queue_calls": self._calls.fill()}

    async def now(self) -> Position:
        seconds, micros = await self._calls.call("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    def server_of(self, source: QueueSource) -> str:
        return self._calls.server_of(keys.due(source))

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
        arguments: list[Argument] = [expected, fed, start, self._new_life(), most, missed, len(groups)]
        arguments += map(_packed, groups)
        for one in dated:
            arguments += (one.at, _packed(one.group))
        found = await self._calls.run(QUEUE_FEED, keys.window(source)[:5], arguments)
        with parsing(keys.window(source)[0]):
            return Fed(*map(int, found))

    async def take(self, source: QueueSource, rules: LendingRules, wishes: Sequence[LoanWish], call: TakeCall) -> Taken:
        life = self._new_life() if source.dead else ""
        arguments: list[Argument] = [
            *(source.queue_id, life, rules.loan, rules.max_deliveries, _flag(on=rules.ordered), rules.ttl),
            *(_flag(on=rules.single), f"{call.number} "),
        ]
        for one in wishes:
            arguments += (one.most, one.consumer, _flag(on=one.announce))
        names = [*self._keys(source), keys.call(source, call.node_id)]
        life, due, *found = await self._calls.run(QUEUE_TAKE, names, arguments)
        if not life:
            return Taken([HELD if rules.single else None] * len(wishes))
        with parsing(names[0]):
            loans = [_loan(life.decode(), wish.consumer, one) for wish, one in zip(wishes, found, strict=True)]
            return Taken(loans, int(due) if due else None)

    async def settle(
        self, source: QueueSource, rules: LendingRules, life: str, said: Sequence[Settlement], jitter: int
    ) -> Settled:
        arguments: list[Argument] = [
            *(source.queue_id, _dead(source), life, rules.max_deliveries, _flag(on=rules.ordered), jitter),
            *(len(rules.retry), *rules.retry),
        ]
        for one in said:
            arguments += (one.number, one.how.value, bytes(one.indexes), one.amount, one.reason)
        count, *over = await self._calls.run(QUEUE_SETTLE, self._keys(source), arguments)
        return Settled(count, tuple((int(number), index) for number, index in zip(over[::2], over[1::2], strict=True)))

    async def dismiss(self, source: QueueSource, consumer: str) -> int:
        return int(await self._calls.run(QUEUE_DISMISS, self._keys(source), [consumer]))

    async def dying(self, shard: Shard, most: int) -> Sequence[Dying]:
        found = await self._calls.run(QUEUE_DYING, keys.dying(shard), [most, ""])
        with parsing(keys.dying(shard)[0]):
            return [_dying(shard, one) for one in found]

    async def buried(self, shard: Shard, number: int) -> None:
        await self._calls.run(QUEUE_DYING, keys.dying(shard), [0, number])

    async def seek(self, source: QueueSource, fed: Position) -> None:
        await self._calls.run(QUEUE_SEEK, keys.window(source), [self._new_life(), fed, ""])

    async def redrive(self, source: QueueSource, until: Position) -> None:
        await self._calls.run(QUEUE_SEEK, keys.window(source), [self._new_life(), "", until])

    async def states(self, sources: Sequence[QueueSource]) -> Sequence[SourceState | None]:
        if not sources:
            return []
        now = await self.now()
        found = await self._calls.call_many([("HMGET", keys.window(one)[0], *_STATE) for one in sources])
        states = [_numbers(one, fields) for one, fields in zip(sources, found, strict=True)]
        # Most of a thousand queues have nothing, and nobody takes from them: they are asked no more.
        filled = [one for one, state in enumerate(states) if state and state[_SIZE]]
        lately = [one for one, state in enumerate(states) if state and state[_ASKED] > now - CONSUMER_US - NOTED_US]
        asked: list[tuple[Argument, ...]] = [("HGET", keys.window(sources[one])[1], states[one][-1]) for one in filled]
        since = f"({now - CONSUMER_US}"
        asked += (("ZRANGEBYSCORE", keys.consumers(sources[one]), since, "+inf", "WITHSCORES") for one in lately)
        replies = await self._calls.call_many(asked) if asked else []
        firsts = dict(zip(filled, replies, strict=False))
        consumers = dict(zip(lately, replies[len(filled) :], strict=True))
        return [
            _state(state, firsts.get(place), _consumers(source, consumers.get(place, ()))) if state else None
            for place, (source, state) in enumerate(zip(sources, states, strict=True))
        ]

    async def lent_until(self, sources: Sequence[QueueSource]) -> Position:
        due = await self._calls.call_many([("ZRANGE", keys.due(one), 0, -1, "WITHSCORES") for one in sources])
        return max((int(at) for one in due for name, at in _pairs(one) if name.startswith(b"l")), default=0)

    async def forget(self, sources: Sequence[QueueSource]) -> None:
        await self._calls.call_many([("UNLINK", *keys.window(one), keys.consumers(one)) for one in sources])

    async def hint(self, sources: Iterable[QueueSource]) -> None:
        await self._tell(hints_of(sources))

    @property
    def hears(self) -> bool:
        """True if hints arrive."""
        return self._listener.listening

    def hear(self, heard: Callable[[QueueHint], None]) -> None:
        self._heard.append(heard)

    async def version(self) -> int:
        found = await self._calls.call("HGET", keys.DECLARED, "version")
        with parsing(keys.DECLARED):
            return int(found or 0)

    async def read(self, since: int = -1) -> Declarations:
        version, whole, found = await self._calls.run(QUEUE_DECLARED, [keys.DECLARED], [since])
        with parsing(keys.DECLARED):
            documents = {name.decode(): one for name, one in zip(found[::2], found[1::2], strict=True)}
            for about in ("version", "lately"):
                documents.pop(about, None)
            return Declarations(int(version), documents, whole=bool(whole))

    async def apply(self, changes: Sequence[DocumentChange], expected: int) -> int | None:
        arguments: list[Argument] = [expected]
        for name, document in changes:
            arguments += (name, document or b"")
        version = int(await self._calls.run(QUEUE_DECLARE, [keys.DECLARED], arguments))
        if version <= 0:
            return None
        await self._tell([CHANGED_DECLARATIONS])
        return version

    async def _tell(self, hints: Iterable[QueueHint]) -> None:
        with suppress(UnavailableError):
            await self._calls.call("PUBLISH", keys.HINTS, hint_text(hints))

    @staticmethod
    def _keys(source: QueueSource) -> list[str]:
        return [*keys.window(source), keys.consumers(source), *keys.dying(source.shard)]

    def _hear(self, data: bytes) -> None:
        for one in read_hints(data.decode(errors="replace")):
            for heard in self._heard:
                heard(one)

    async def _beat(self) -> None:
        while True:
            with suppress(UnavailableError):
                await self._calls.call("PUBLISH", keys.HINTS, HEARTBEAT)
            await asyncio.sleep(HEARTBEAT_SECONDS)


def _pairs(found: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(found[::2], found[1::2], strict=True)


def _flag(*, on: bool) -> str:
    return "1" if on else ""


def _packed(group: ReferenceGroup) -> bytes:
    return bytes((group.deliveries,)) + pack_references(group.references)


def _dead(source: QueueSource) -> str:
    return "d" if source.dead else ""


def _loan(life: str, consumer: str, found: Any) -> Loan | None:  # noqa: ANN401 - what the script replies
    if not found:
        return None
    if found == b"-":
        return HELD
    number, deliveries, until, references = found
    return Loan(life, int(number), consumer, int(deliveries), int(until), unpack_references(references))


def _dying(shard: Shard, entry: Sequence[Any]) -> Dying:
    number, queue, dead, deliveries, reason, consumer, reference = entry
    return Dying(
        int(number),
        QueueSource(queue.decode(), shard, bool(dead)),
        deliveries,
        reason.decode(errors="replace"),
        consumer.decode(errors="replace"),
        unpack_references(reference)[0],
    )


def _numbers(source: QueueSource, fields: Sequence[bytes | None]) -> Sequence[int]:
    """The fields of a window; none where there is no window. StoreUnavailableError where somebody else wrote them."""
    if fields[0] is None:
        return ()
    try:
        return [int(one or 0) for one in fields]
    except ValueError as error:
        raise unreadable(keys.window(source)[0], error) from None


def _consumers(source: QueueSource, found: Sequence[bytes]) -> tuple[tuple[str, Position], ...]:
    if not found:
        return ()
    with parsing(keys.consumers(source)):
        return tuple(sorted((name.decode(), int(at)) for name, at in _pairs(found)))


def _state(numbers: Sequence[int], first: bytes | None, consumers: tuple[tuple[str, Position], ...]) -> SourceState:
    fed, until, size, lent, later, waits, parked, asked, done, retried, dead, expired, missed, delivered, again = (
        numbers[:-1]
    )
    return SourceState(
        fed=fed,
        until=until,
        size=size,
        lent=lent,
        later=later,
        dated=min(later, waits),
        held_back=parked,
        asked=asked,
        done=done,
        retried=retried,
        dead=dead,
        expired=expired,
        missed=missed,
        delivered=delivered,
        again=again,
        oldest=int.from_bytes(first[1:9]) if first else 0,
        consumers=consumers,
    )
