"""Settlements of this node: while one call for a source is under way, the next ones gather, and go together."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from app.core.errors import HomingError
from app.core.queues.loans import LendingRules, LoanToken, QueueSource, Settled, SettleHow, Settlement
from app.core.queues.model import DeclaredQueue
from app.runtime.telemetry import Counters
from app.store.queues import QueueStore

MOST_TOGETHER: Final = 1024
"""Settlements of one call."""
SOON_US: Final = 1_000_000
"""Consumers that wait are told of what is retried before; they look once a second anyway."""
JITTER: Final = (800, 1200)
"""Times between retries vary, in thousandths."""


@dataclass(frozen=True, slots=True)
class TokenSettlement:
    """The verdict of a consumer on one event."""

    token: LoanToken
    how: SettleHow
    amount: int = -1
    reason: str = ""


class _Waiting(NamedTuple):
    said: Sequence[Settlement]
    answer: asyncio.Future[Settled]


class Settler:
    """`settled` is told in which source something was settled; there may be room again."""

    def __init__(
        self,
        store: QueueStore,
        settled: Callable[[DeclaredQueue, QueueSource], None],
        random: Random,
        counters: Counters,
    ) -> None:
        self._store = store
        self._settled = settled
        self._random = random
        self._counters = counters
        self._waiting: defaultdict[tuple[QueueSource, str], list[_Waiting]] = defaultdict(list)
        self._flying: dict[tuple[QueueSource, str], asyncio.Task[None]] = {}
        self._soon: set[asyncio.Task[None]] = set()

    async def settle(self, queue: DeclaredQueue, source: QueueSource, life: str, said: Sequence[Settlement]) -> Settled:
        """Settle loans of this life. StoreUnavailableError: it may or may not have happened, and may be repeated."""
        answer: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        place = source, life
        self._waiting[place].append(_Waiting(said, answer))
        if place not in self._flying:
            self._flying[place] = asyncio.create_task(self._fly(queue, place), name="settlements")
        return await answer

    async def settle_tokens(
        self, queue: DeclaredQueue, sources: Iterable[QueueSource], said: Sequence[TokenSettlement]
    ) -> list[LoanToken]:
        """Settle what was lent from these sources; return those that were over, or are of another queue."""
        known = set(sources)
        over: list[LoanToken] = []
        parts: defaultdict[tuple[QueueSource, str], list[TokenSettlement]] = defaultdict(list)
        for one in said:
            source = QueueSource(queue.id, one.token.shard, one.token.dead)
            if source in known:
                parts[source, one.token.life].append(one)
            else:
                over.append(one.token)
        ended = await asyncio.gather(*(self._settle_part(queue, *place, part) for place, part in parts.items()))
        return [*over, *(token for tokens in ended for token in tokens)]

    async def _settle_part(
        self, queue: DeclaredQueue, source: QueueSource, life: str, said: Sequence[TokenSettlement]
    ) -> list[LoanToken]:
        settlements = [
            Settlement(one.token.number, one.how, (one.token.index,), one.amount, one.reason) for one in said
        ]
        found = await self.settle(queue, source, life, settlements)
        over = set(found.over)
        return [one.token for one in said if (one.token.number, one.token.index) in over]

    def settle_soon(self, queue: DeclaredQueue, source: QueueSource, life: str, said: Sequence[Settlement]) -> None:
        """The same, for nobody who waits for it."""

        async def settle() -> None:
            with suppress(HomingError):
                await self.settle(queue, source, life, said)

        task = asyncio.create_task(settle(), name="settlements")
        self._soon.add(task)
        task.add_done_callback(self._soon.discard)

    async def close(self) -> None:
        """Let what was said be settled."""
        await asyncio.gather(*self._soon, *self._flying.values(), return_exceptions=True)

    async def _fly(self, queue: DeclaredQueue, place: tuple[QueueSource, str]) -> None:
        try:
            while waiting := self._waiting.pop(place, []):
                together: list[_Waiting] = []
                while waiting and sum(len(one.said) for one in together) < MOST_TOGETHER:
                    together.append(waiting.pop(0))
                if waiting:
                    self._waiting[place] = waiting
                await self._send(queue, place, together)
        finally:
            del self._flying[place]

    async def _send(self, queue: DeclaredQueue, place: tuple[QueueSource, str], together: Sequence[_Waiting]) -> None:
        merged, doubles = _merged(together)
        jitter = self._random.randint(*JITTER)
        try:
            found = await self._store.settle(place[0], queue.options.rules, place[1], merged, jitter)
        except Exception as error:  # noqa: BLE001 - whoever waits is told of it
            for one in together:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        self._counters["queues.settled"] += found.count
        self._counters["queues.over"] += len(found.over)
        over = set(found.over)
        for number, one in enumerate(together):
            if not one.answer.done():
                one.answer.set_result(_part(one.said, over, doubles[number]))
        self._settled(queue, place[0])
        if any(one.how is SettleHow.RELEASE or _comes_soon(one, queue.options.rules, jitter) for one in merged):
            await self._store.hint([place[0]])


def _comes_soon(one: Settlement, rules: LendingRules, jitter: int) -> bool:
    """Return whether it comes back, perhaps, before others have looked by themselves, and learned when that is."""
    if one.how is not SettleHow.RETRY:
        return False
    after = one.amount if one.amount >= 0 else min(rules.retry) * jitter // 1000
    return after < SOON_US


def _merged(together: Sequence[_Waiting]) -> tuple[list[Settlement], list[set[tuple[int, int]]]]:
    """The same said of several events of a loan, as one. Of what is said twice the first counts, as in the store.

    Longer loans come first, as they settle nothing: a connection that keeps a loan says so while its consumer is done.
    """
    merged: dict[tuple[int, SettleHow, int, str], list[int]] = {}
    whole: list[Settlement] = []
    seen: set[tuple[int, int]] = set()
    doubles: list[set[tuple[int, int]]] = []
    for one in together:
        double: set[tuple[int, int]] = set()
        for said in one.said:
            if not said.indexes:
                whole.append(said)
                continue
            indexes = merged.setdefault((said.number, said.how, said.amount, said.reason), [])
            for index in said.indexes:
                known = (said.number, index)
                if known in seen:
                    double.add(known)
                    continue
                indexes.append(index)
                if said.how is not SettleHow.EXTEND:
                    seen.add(known)
        doubles.append(double)
    parts = [
        Settlement(number, how, tuple(indexes), amount, reason)
        for (number, how, amount, reason), indexes in merged.items()
        if indexes
    ]
    return [*sorted(parts, key=lambda one: one.how is not SettleHow.EXTEND), *whole], doubles


def _part(said: Sequence[Settlement], over: set[tuple[int, int]], doubles: set[tuple[int, int]]) -> Settled:
    """Return what became of what one of them said."""
    mine = [(one.number, index) for one in said for index in one.indexes or (-1,)]
    ended = tuple(one for one in mine if one in over or one in doubles)
    return Settled(len(mine) - len(ended), ended)
