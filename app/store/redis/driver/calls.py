"""The bounded queue between callers that wait and the lanes that serve them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, cast

from hiredis import pack_command

from app.core.errors import StoreUnavailableError

TICK_SECONDS: Final = 0.05
"""The precision with which budgets are kept."""


def pack(command: Sequence[str | bytes | int]) -> bytes:
    """The command as Redis reads it."""
    # The stub of hiredis takes tuples of one element only.
    return cast("bytes", pack_command(cast("Any", tuple(command))))


class Call:
    """A packed command and the future of its reply. On the loop's clock: since when it waits, and until when.

    `deadline` is infinite for no budget. `replies` is how many commands are packed here, whose replies come as a list;
    None for a single one. `writes` says whether replicas are to have what it changed.
    """

    __slots__ = ("deadline", "future", "packed", "replies", "sent", "since", "writes")

    def __init__(
        self,
        packed: bytes,
        future: asyncio.Future[Any],
        since: float,
        deadline: float,
        replies: int | None = None,
        writes: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        self.packed = packed
        self.writes = writes
        self.replies = replies
        self.future = future
        self.since = since
        self.deadline = deadline
        self.sent = False
        """A lane has taken it, so that Redis may carry it out."""

    @property
    def patient(self) -> bool:
        """True if it waits as long as it takes."""
        return self.deadline == math.inf

    def resolve(self, reply: object) -> None:
        """Hand over the reply; nobody gets it when the caller was cancelled or ran out of budget."""
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: Exception) -> None:
        """Let the caller fail, if it still waits."""
        if not self.future.done():
            self.future.set_exception(error)

    def give_up(self, reason: str) -> None:
        """Let the caller fail, if it still waits, as there was no answer."""
        self.fail(StoreUnavailableError(reason, asked=self.sent))


class CallQueue:
    """Calls in order of arrival. What a lane has taken stays known here until it is done, so that budgets end it."""

    def __init__(self, bound: int, counters: Counter[str]) -> None:
        self._bound = bound
        self._counters = counters
        self._waiting: deque[Call] = deque()
        self._taken: set[Call] = set()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._crowd: deque[asyncio.Future[None]] = deque()
        self._ticker: asyncio.TimerHandle | None = None
        self._open = True
        self.ticked: Callable[[float], None] = lambda _now: None
        """Told the time of the loop each TICK_SECONDS while somebody waits."""

    def __len__(self) -> int:
        """Return how many callers wait, for their turn or for their reply."""
        return sum(not call.future.done() for call in (*self._waiting, *self._taken))

    @property
    def closed(self) -> bool:
        """True if nothing may be added any more."""
        return not self._open

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop. Kept, as asking for it costs a system call on Python 3.11."""
        return asyncio.get_running_loop()

    async def put(
        self,
        packed: bytes,
        since: float,
        deadline: float,
        replies: int | None = None,
        writes: bool = True,  # noqa: FBT001, FBT002
    ) -> asyncio.Future[Any]:
        """Line up. When the queue is full a call with a deadline is refused, one without waits for room."""
        if len(self._waiting) >= self._bound:
            await self.admit(deadline)
        future: asyncio.Future[Any] = self.loop.create_future()
        self.add(Call(packed, future, since, deadline, replies, writes))
        return future

    async def admit(self, deadline: float) -> None:
        """Return when there is room. A call with a deadline is refused where there is none."""
        while len(self._waiting) >= self._bound:
            if deadline < math.inf:
                self._counters["store.rejected"] += 1
                raise StoreUnavailableError("too many calls wait for the store", asked=False)
            await self._room()

    def add(self, call: Call) -> None:
        """Line up behind all others, whether there is room or not; StoreUnavailableError when this is closed."""
        if not self._open:
            raise StoreUnavailableError("the store is closed")
        self._waiting.append(call)
        _wake_one(self._idle)
        if self._ticker is None:
            self._ticker = self.loop.call_later(TICK_SECONDS, self._tick)

    def take_out(self, which: Callable[[Call], bool]) -> list[Call]:
        """Take out the waiting calls that are somebody else's from now on, in their order."""
        out = [call for call in self._waiting if which(call)]
        if out:
            gone = set(out)
            self._waiting = deque(call for call in self._waiting if call not in gone)
            _wake_all(self._crowd)
        return out

    async def take(self, most: int) -> list[Call]:
        """Return what waits, at least one call, without those given up. Say `done` or `give_back` afterwards."""
        while True:
            batch: list[Call] = []
            while self._waiting and len(batch) < most:
                call = self._waiting.popleft()
                if not call.future.done():
                    call.sent = True
                    batch.append(call)
            if self._crowd:
                _wake_all(self._crowd)
            if batch:
                self._taken.update(batch)
                return batch
            idle: asyncio.Future[None] = self.loop.create_future()
            self._idle.append(idle)
            await idle

    def done(self, batch: Sequence[Call]) -> None:
        """The batch was served."""
        self._taken.difference_update(batch)

    def give_back(self, batch: Sequence[Call]) -> None:
        """Put what is not resolved before all others."""
        self._taken.difference_update(batch)
        again = [call for call in batch if not call.future.done()]
        self._counters["store.retried"] += len(again)
        self._waiting.extendleft(reversed(again))
        if again:
            _wake_one(self._idle)

    def readers_first(self) -> None:
        """Let what only reads go before what writes; both stay in their order."""
        self._waiting = deque(sorted(self._waiting, key=lambda call: call.writes))

    def hurry(self, seconds: float) -> None:
        """Let nobody wait for longer than this altogether, but the patient."""
        for call in (*self._waiting, *self._taken):
            if not call.patient:
                call.deadline = min(call.deadline, call.since + seconds)

    def close(self) -> None:
        """Let everybody fail who waits, and refuse who comes."""
        self._open = False
        for call in (*self._waiting, *self._taken):
            call.give_up("the store was closed")
        self._waiting.clear()
        _wake_all(self._crowd)
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    async def _room(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._crowd.append(waiter)
        await waiter

    def _tick(self) -> None:
        """End the calls whose budget is over, wherever they are; stop ticking when nobody waits."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self.ticked(now)
        for call in (*self._waiting, *self._taken):
            if call.deadline <= now and not call.future.done():
                self._counters["store.timed_out"] += 1
                call.give_up("the store did not answer in time")
        if any(call.future.done() for call in self._waiting):
            self._waiting = deque(call for call in self._waiting if not call.future.done())
            _wake_all(self._crowd)
        self._ticker = loop.call_later(TICK_SECONDS, self._tick) if self._waiting or self._taken else None


def _wake_one(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return


def _wake_all(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
