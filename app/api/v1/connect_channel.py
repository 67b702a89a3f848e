"""A channel of a connection: it takes from one queue as far as its credit goes, and hands on what it was lent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from app.api.problems import of_error
from app.api.v1 import queue_models as models
from app.api.v1.queue_models import message_json
from app.api.v1.settlements import ToldSettlement
from app.core.clock import Clock
from app.core.errors import HomingError, QueueNotFoundError, UnavailableError
from app.core.queues.channels import ChannelLoans
from app.core.queues.loans import LoanToken, SettleHow, micros_of
from app.core.queues.model import DeclaredQueue
from app.queues.plane import QueuePlane
from app.queues.settler import TokenSettlement
from app.queues.taker import QueueMessage

WAIT_SECONDS: Final = 20.0
"""The time that one look at a queue waits."""
MOST_BYTES: Final = 128 * 1024
"""The bound of the events in one frame, where they are several."""
AGAIN_SECONDS: Final = 1.0
"""The time for which a store that is away is left alone."""
_MICROS: Final = 1_000_000


class ConnectChannel:
    """`send` writes a frame, and returns once the peer has read most of what came before."""

    def __init__(
        self,
        number: int,
        queue: DeclaredQueue,
        plane: QueuePlane,
        clock: Clock,
        send: Callable[[bytes], Awaitable[None]],
        *,
        prefetch: int,
        consumer: str,
        auto: bool,
    ) -> None:
        self.number: Final = number
        self.name: Final = queue.name
        self.loans: Final = ChannelLoans(queue.options.loan.total_seconds(), prefetch)
        self._queue_id = queue.id
        self._plane = plane
        self._clock = clock
        self._send = send
        self._consumer = consumer
        self._auto = auto
        self._changed = asyncio.Event()
        self._taking: asyncio.Task[list[QueueMessage]] | None = None

    async def run(self, changed: Callable[[], None]) -> None:
        """Take and hand on, for ever; `changed` is called when something was lent. Raises what ends the channel."""
        while True:
            if not self.loans.credit:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                messages = await self._take()
                if messages and self._auto:  # in a step of its own, which no pause cuts off
                    messages = await self._plane.settle_at_once(self._queue(), messages)
            except UnavailableError:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if messages:
                if not self._auto:
                    self._queue()  # by whose loan these were lent, though it was changed while this waited
                    self.loans.lend((one.token for one in messages), self._clock.monotonic())
                    changed()
                body = b",".join(map(message_json, messages))
                await self._send(b'{"channel":%d,"events":[%b]}' % (self.number, body))

    async def settle(self, told: ToldSettlement) -> list[str]:
        """Settle; return those that are over. QueueNotFoundError, StoreUnavailableError."""
        over = await self._plane.settle(self._queue(), told.known)
        now = self._clock.monotonic()
        gone = set(over)
        for one in told.known:
            if one.token in gone:
                self.loans.end(one.token)
            else:
                self.loans.settle(one.token, one.how, one.amount / _MICROS, now)
        self._changed.set()
        return [*told.unknown, *map(str, over)]

    def prefetch(self, most: int) -> None:
        """Change how much is lent at once. With 0, what is not on its way is not lent any more."""
        self.loans.prefetch = most
        self._changed.set()
        if not most and self._taking is not None:
            self._taking.cancel()

    async def keep(self) -> None:
        """Extend what is to be extended now."""
        now = self._clock.monotonic()
        due = self.loans.due(now)
        with suppress(HomingError):  # it is tried again before the loans run out
            for token in await self._say(due, SettleHow.EXTEND):
                self.loans.end(token)
            for token in due:
                self.loans.extended(token, now)  # where all of a loan is over, it is none any more
            if due and not self.loans.credit:
                await self._ask_on()
        self._changed.set()  # loans that have run out take no credit

    async def _ask_on(self) -> None:
        """Stay the one who has a queue that is for one consumer, though it wants nothing while it works."""
        queue = self._queue()
        if queue.options.single:
            await self._plane.take(queue, 0, self._consumer, 0.0, MOST_BYTES, auto=False)

    async def release(self) -> None:
        """Give back what is lent, so that others get it at once. Where that fails, the loans run out."""
        held = list(self.loans.held())
        self.loans.forget()
        with suppress(HomingError):
            await self._say(held, SettleHow.RELEASE)

    async def _say(self, tokens: list[LoanToken], how: SettleHow) -> list[LoanToken]:
        if not tokens:
            return []
        queue = self._queue()
        amount = micros_of(queue.options.loan) if how is SettleHow.EXTEND else -1
        return await self._plane.settle(queue, [TokenSettlement(one, how, amount) for one in tokens])

    async def _take(self) -> list[QueueMessage]:
        most = min(self.loans.credit, models.MOST_TAKEN)
        taking = self._plane.take(self._queue(), most, self._consumer, WAIT_SECONDS, MOST_BYTES, auto=False)
        self._taking = asyncio.create_task(taking, name="channel takes")
        try:
            return await self._taking
        except asyncio.CancelledError:
            if self._taking.cancelled() and not _is_cancelled():
                return []  # a pause
            self._taking.cancel()
            with suppress(asyncio.CancelledError, HomingError):
                for one in await self._taking:
                    self.loans.lend((one.token,), self._clock.monotonic())  # they are given back with all others
            raise
        finally:
            self._taking = None

    def _queue(self) -> DeclaredQueue:
        """The queue as it is declared now; by its loan the channel keeps what it is lent from now on."""
        queue = self._plane.book.by_id(self._queue_id)
        if queue is None:
            raise QueueNotFoundError(f"the queue {self.name!a} was deleted")
        self.loans.loan = queue.options.loan.total_seconds()
        return queue


def closed_json(number: int, error: HomingError) -> bytes:
    """The frame that tells that the node has closed a channel, and why."""
    return b'{"channel":%d,"closed":%b}' % (number, bytes(of_error(error).body))


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
