"""One per node: sends what its callers queued up as one pipeline per round trip, and owns all connections.

Callers only await futures, so a cancelled one never leaves an unread reply on a connection, for the next to read. Every
call must be safe to repeat: after a lost connection those whose reply is missing are sent again.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog
from redis.asyncio.connection import AbstractConnection

from app.runtime.histograms import StoreMeasures
from app.runtime.tasks import end
from app.runtime.telemetry import Bursts
from app.store.redis.driver.calls import CallQueue, pack
from app.store.redis.driver.lane import Argument, CombinerOptions, Lane, Script, Surroundings
from app.store.redis.driver.pulse import answers
from app.store.redis.driver.replicas import writes

AWAY_BUDGET_SECONDS: Final = 0.4
"""The budget while Redis is known to be away: whoever comes then is told soon, before many have piled up."""

SILENT_SHARE: Final = 0.5
"""A batch that has waited for this share of a budget shows that Redis is away though its connection stands: it may be
frozen."""

PULSE_SHARE: Final = 0.6
"""Redis may think about a PING for so much of a lane's patience: with both, callers know within half a second."""

_log = structlog.get_logger(__name__)


class _LoopClock:
    """The clock of the loop, by which budgets are kept as well."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Combiner:
    """Call it from many tasks at once; start it first, close it in the end."""

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        scripts: Sequence[Script],
        *,
        counters: Counter[str],
        options: CombinerOptions | None = None,
        chance: random.Random | None = None,
        measures: StoreMeasures | None = None,
        around: Surroundings | None = None,
    ) -> None:
        self._options = options or CombinerOptions()
        self._queue = CallQueue(self._options.max_queue, counters)
        shared = counters, chance or random.Random(), measures or StoreMeasures(), around, Bursts(_LoopClock())
        self._lanes = [Lane(connect, scripts, self._queue, self._options, *shared) for _ in range(self._options.lanes)]
        for lane in self._lanes:
            lane.refused = self._refused
        self._tasks: list[asyncio.Task[None]] = []
        self._connect = connect
        self._counters = counters
        self._queue.ticked = self._look
        self._feeling: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """True if a connection stands, as far as we know."""
        return any(lane.connected for lane in self._lanes)

    @property
    def serves(self) -> bool:
        """True if it gets answers, as far as we know."""
        return any(lane.connected and not lane.silent for lane in self._lanes)

    @property
    def queue(self) -> CallQueue:
        """The calls that wait here."""
        return self._queue

    @property
    def closed(self) -> bool:
        """True if nothing may be added any more."""
        return self._queue.closed

    @property
    def outstanding(self) -> int:
        """Return how many calls wait for their turn or their reply."""
        return len(self._queue)

    @property
    def last_error(self) -> str:
        """Return why the last connection failed, or nothing."""
        return next((lane.last_error for lane in self._lanes if lane.last_error), "")

    def start(self) -> None:
        """Begin to connect, and go on doing so until closed. A closed combiner stays closed."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(lane.run(), name=f"store combiner {number}")
                for number, lane in enumerate(self._lanes, start=1)
            ]

    async def close(self) -> None:
        """Let go of the connections; whoever still waits gets StoreUnavailableError."""
        await end(self.refuse())

    def refuse(self) -> Sequence[asyncio.Task[None]]:
        """Fail who waits and who comes from now on. The tasks are to be ended, and let go of the connections."""
        self._queue.close()
        return self.halt()

    async def run_script(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument], budget: float | None
    ) -> Any:  # noqa: ANN401 - what the script replies
        """The reply of a script. `budget` is in seconds; None waits as long as it takes."""
        command = ("EVALSHA", script.sha, len(keys), *keys, *arguments)
        return await self._send(pack(command), budget, script.writes)

    def halt(self) -> Sequence[asyncio.Task[None]]:
        """The tasks, to be ended: calls stay in the queue for whoever takes them out."""
        return self._tasks if self._feeling is None else [*self._tasks, self._feeling]

    async def call(self, command: tuple[Argument, ...], budget: float | None, *, beside: str = "") -> Any:  # noqa: ANN401, ARG002 - a reply of Redis; one server has all keys
        """The reply of a command that is safe to repeat; StoreUnavailableError when the budget ends before it came.

        One without a key is answered by the server that has the key `beside`.
        """
        return await self._send(pack(command), budget, writes(command))

    async def call_many(self, commands: Sequence[tuple[Argument, ...]], budget: float) -> list[Any]:
        """The replies of commands that travel as one: for many that read little each.

        A command that Redis refuses for good has its ResponseError for a reply.
        """
        packed = b"".join([pack(command) for command in commands])
        replies: list[Any] = await self._send(packed, budget, any(map(writes, commands)), len(commands))
        return replies

    async def everywhere(self, command: tuple[Argument, ...], budget: float, *, partly: bool = False) -> list[Any]:  # noqa: ARG002 - there is one
        """The reply of each server. With `partly` those that are away are left out, unless all of them are."""
        return [await self.call(command, budget)]

    def server_of(self, key: str) -> str:  # noqa: ARG002 - one server has all keys
        """The name of the server that has this key: all are of one that needs no name."""
        return ""

    async def _send(self, packed: bytes, budget: float | None, writing: bool, replies: int | None = None) -> Any:  # noqa: ANN401, FBT001
        now = self._queue.loop.time()
        deadline = math.inf if budget is None else now + self.within(budget, now, writing=writing)
        return await (await self._queue.put(packed, now, deadline, replies, writing))

    def within(self, budget: float, now: float, *, writing: bool = False) -> float:
        """The budget, cut short while no lane gets answers, and for what writes while that has to wait."""
        for lane in self._lanes:
            if writing and lane.writes_wait:
                continue
            if lane.connected and not lane.silent and now - (lane.asked_at or now) < SILENT_SHARE * budget:
                return budget
        return min(budget, AWAY_BUDGET_SECONDS)

    def _refused(self) -> None:
        """Let those go soon that were under way when all connections broke: whoever comes now is told soon as well."""
        if not self.connected:
            self._queue.hurry(AWAY_BUDGET_SECONDS)

    def _look(self, now: float) -> None:
        """See whether a batch has waited for long, and feel the pulse of Redis then."""
        for lane in self._lanes:
            asked_at = lane.asked_at
            if self._feeling is None and not lane.silent and asked_at is not None and now - asked_at >= lane.patience:
                self._feeling = asyncio.create_task(self._feel(lane, asked_at), name="store pulse")

    async def _feel(self, lane: Lane, asked_at: float) -> None:
        try:
            if await answers(self._connect, PULSE_SHARE * lane.patience) or lane.asked_at != asked_at:
                return
        finally:
            self._feeling = None
        lane.silent = True
        self._counters["store.silent"] += 1
        _log.warning("store_silent", seconds=round(self._queue.loop.time() - asked_at, 2))
        self._queue.hurry(AWAY_BUDGET_SECONDS)
