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
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Final

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, ResponseError

from app.core.errors import StoreRefusedError, StoreUnavailableError
from app.runtime.histograms import StoreMeasures
from app.runtime.tasks import end
from app.store.redis.driver.calls import Call, CallQueue, pack
from app.store.redis.driver.pulse import answers
from app.store.redis.driver.replicas import SHORT_PAUSE_SECONDS, ReplicaWait, writes

BATCH: Final = 128
"""The most calls in one round trip: bounds how long others wait for it."""

AWAY_BUDGET_SECONDS: Final = 0.4
"""The budget while Redis is known to be away: whoever comes then is told soon, before many have piled up."""

SILENT_SHARE: Final = 0.5
"""When a batch has waited for so much of a budget, Redis is known to be away though its connection stands: it may be
frozen."""

_USUAL: Final = 4
"""An answer that takes so many times as long as the one before it is not on its way as usual."""

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 1.0

_PASSING: Final = frozenset(
    ("BUSY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN")
)
"""Redis cannot serve now, and will: a script that runs too long, a replica, a full disk, rights not given yet."""

Argument = str | bytes | int

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the name by which Redis knows it."""

    text: str
    sha: str
    writes: bool = True

    @classmethod
    def of(cls, text: str, *, writes: bool = True) -> Script:
        """The script of this text, which may change something or not."""
        return cls(text, sha1(text.encode(), usedforsecurity=False).hexdigest(), writes)


@dataclass(frozen=True, slots=True)
class CombinerOptions:
    """Bounds. `answer_seconds` is how long one round trip may take before the connection counts as dead."""

    lanes: int = 1
    max_queue: int = 10_000
    answer_seconds: float = 2.0
    batch: int = BATCH
    """The most calls in one round trip."""
    wait_replicas: int = 0
    """So many replicas have to have what a call wrote before it is answered."""
    silent_seconds: float = 0.25
    """When a batch has waited for so long, and nobody answers a PING, Redis is away though its connection stands. It is
    longer where round trips take longer than usual."""


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
    ) -> None:
        self._options = options or CombinerOptions()
        self._queue = CallQueue(self._options.max_queue, counters)
        shared = counters, chance or random.Random(), measures or StoreMeasures()
        self._lanes = [_Lane(connect, scripts, self._queue, self._options, *shared) for _ in range(self._options.lanes)]
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
        return self._tasks if self._feeling is None else [*self._tasks, self._feeling]

    async def run_script(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument], budget: float | None
    ) -> Any:  # noqa: ANN401 - what the script replies
        """The reply of a script. `budget` is in seconds; None waits as long as it takes."""
        command = ("EVALSHA", script.sha, len(keys), *keys, *arguments)
        return await self._send(pack(command), budget, script.writes)

    async def call(self, command: tuple[Argument, ...], budget: float | None) -> Any:  # noqa: ANN401 - a reply of Redis
        """The reply of a command that is safe to repeat; StoreUnavailableError when the budget ends before it came."""
        return await self._send(pack(command), budget, writes(command))

    async def call_many(self, commands: Sequence[tuple[Argument, ...]], budget: float) -> list[Any]:
        """The replies of commands that travel as one: for many that read little each.

        A command that Redis refuses for good has its ResponseError for a reply.
        """
        packed = b"".join([pack(command) for command in commands])
        replies: list[Any] = await self._send(packed, budget, any(map(writes, commands)), len(commands))
        return replies

    async def _send(self, packed: bytes, budget: float | None, writing: bool, replies: int | None = None) -> Any:  # noqa: ANN401, FBT001
        now = self._queue.loop.time()
        deadline = math.inf if budget is None else now + self._within(budget, now, writing=writing)
        return await (await self._queue.put(packed, now, deadline, replies, writing))

    def _within(self, budget: float, now: float, *, writing: bool = False) -> float:
        """The budget, cut short while no lane gets answers, and for what writes while replicas are missing."""
        for lane in self._lanes:
            if writing and lane.replicas.short:
                continue
            if lane.connected and not lane.silent and now - (lane.asked_at or now) < SILENT_SHARE * budget:
                return budget
        return min(budget, AWAY_BUDGET_SECONDS)

    def _look(self, now: float) -> None:
        """See whether a batch has waited for long, and feel the pulse of Redis then."""
        for lane in self._lanes:
            if self._feeling is None and not lane.silent and now - (lane.asked_at or now) >= lane.patience:
                self._feeling = asyncio.create_task(self._feel(lane), name="store pulse")

    async def _feel(self, lane: _Lane) -> None:
        asked_at = lane.asked_at
        try:
            if await answers(self._connect, lane.patience) or lane.asked_at != asked_at:
                return
        finally:
            self._feeling = None
        lane.silent = True
        self._counters["store.silent"] += 1
        _log.warning("store_silent", seconds=round(self._queue.loop.time() - (asked_at or 0.0), 2))
        self._queue.hurry(AWAY_BUDGET_SECONDS)


class _Lane:
    """One connection and the task that owns it."""

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        scripts: Sequence[Script],
        queue: CallQueue,
        options: CombinerOptions,
        counters: Counter[str],
        chance: random.Random,
        measures: StoreMeasures,
    ) -> None:
        self.connected = False
        self.asked_at: float | None = None
        """Since when it waits for the answer of Redis to a batch; None while it does not."""
        self.silent = False
        """It waits for an answer, and nobody else gets one either."""
        self.patience = options.silent_seconds
        """After so many seconds without an answer it is worth a look whether others get one."""
        self.replicas: Final = ReplicaWait(options.wait_replicas, counters)
        self.last_error = ""
        self._connect = connect
        self._load_scripts = [pack(("SCRIPT", "LOAD", script.text)) for script in scripts]
        self._queue = queue
        self._answer_seconds = options.answer_seconds
        self._silent_seconds = options.silent_seconds
        self._batch = options.batch
        self._counters = counters
        self._chance = chance
        self._measures = measures
        self._failures = 0

    async def run(self) -> None:
        """Serve until cancelled: no error ends it, for without it the node would be deaf."""
        while True:
            connection = self._connect()
            try:
                await self._open(connection)
                await self._serve(connection)
            except Exception as error:  # noqa: BLE001 - see above; what the drivers raise is no closed set
                self._failures += 1
                self.last_error = str(error) or type(error).__name__
                if self._failures in (1, 10):
                    _log.warning("store_connection_lost", attempts=self._failures, reason=self.last_error)
            finally:
                self.connected, self.asked_at, self.silent = False, None, False
                await connection.disconnect(nowait=True)
            await self._pause()

    async def _open(self, connection: AbstractConnection) -> None:
        async with asyncio.timeout(self._answer_seconds):
            await connection.connect()
            await self._make_scripts_known(connection)
            if self.replicas.asked:
                await connection.send_packed_command([self.replicas.trial], check_health=False)
                await connection.read_response(disable_decoding=True, timeout=math.inf)
        self.connected = True
        if self._failures:
            self._counters["store.reconnected"] += 1

    async def _serve(self, connection: AbstractConnection) -> None:
        while True:
            batch = await self._queue.take(self._batch)
            began = self.asked_at = self._queue.loop.time()
            try:
                async with asyncio.timeout(self._answer_seconds):
                    await self._exchange(connection, batch)
            except BaseException:
                self._queue.give_back(batch)
                raise
            self.asked_at, self.silent = None, False
            if self.replicas.short and not all(call.future.done() for call in batch):
                # They go first again, and in their order: what comes behind them may write the same.
                self._queue.give_back(batch)
                await asyncio.sleep(SHORT_PAUSE_SECONDS)
                continue
            self._queue.done(batch)
            self._failures = 0
            took = self._queue.loop.time() - began
            self.patience = max(self._silent_seconds, _USUAL * took)
            self._measures.exchanged(len(batch), began - batch[0].since, took)

    async def _exchange(self, connection: AbstractConnection, batch: Sequence[Call]) -> None:
        """Resolve the calls; when some could not be served for now, the last error is raised in the end."""
        refused = await self._round_trip(connection, batch)
        if refused and all(isinstance(error, NoScriptError) for error in refused.values()):
            # After SCRIPT FLUSH or a restart. Only those that failed are sent again.
            self._counters["store.scripts_reloaded"] += 1
            await self._make_scripts_known(connection)
            refused = await self._round_trip(connection, list(refused))
        for error in refused.values():
            raise error

    async def _round_trip(self, connection: AbstractConnection, batch: Sequence[Call]) -> dict[Call, ResponseError]:
        """The calls to be sent again, each with the error that it met."""
        waits = self.replicas.asked and any(call.writes for call in batch)
        packed = [call.packed for call in batch]
        if waits:
            packed.append(self.replicas.packed)
        await connection.send_packed_command([b"".join(packed)], check_health=False)
        refused: dict[Call, ResponseError] = {}
        held: list[tuple[Call, object]] = []
        for call in batch:
            try:
                if call.replies is None:
                    reply = await connection.read_response(disable_decoding=True, timeout=math.inf)
                else:
                    reply = await _read_many(connection, call.replies)
            except ResponseError as error:
                if self._may_pass(call, error):
                    refused[call] = error
            else:
                if waits and call.writes:
                    held.append((call, reply))
                else:
                    call.resolve(reply)
        if waits and self.replicas.told(int(await connection.read_response(disable_decoding=True, timeout=math.inf))):
            for call, reply in held:
                call.resolve(reply)
        return refused

    def _may_pass(self, call: Call, error: ResponseError) -> bool:
        """True if the call may succeed when it is sent again; otherwise it fails here."""
        code = _code(error)
        if code == "OOM" and not call.patient:
            self._counters["store.out_of_memory"] += 1
            call.fail(StoreUnavailableError("Redis has reached its maxmemory"))
            return False
        if code in _PASSING and (call.patient or code != "NOPERM"):
            return True
        self._counters["store.failed"] += 1
        _log.error("store_refused", reason=str(error))
        call.fail(StoreRefusedError(f"Redis refused: {error}"))
        return False

    async def _make_scripts_known(self, connection: AbstractConnection) -> None:
        await connection.send_packed_command(self._load_scripts, check_health=False)
        for _ in self._load_scripts:
            await connection.read_response(disable_decoding=True, timeout=math.inf)

    async def _pause(self) -> None:
        """A little longer after each failure in a row. The first attempt comes at once."""
        if self._failures > 1:
            longest = min(_FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10), _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(longest * (0.5 + self._chance.random() / 2))


async def _read_many(connection: AbstractConnection, count: int) -> list[Any]:
    """Read this many replies, with errors in their places. One that may pass is raised, once all are read."""
    replies: list[Any] = []
    for _ in range(count):
        try:
            replies.append(await connection.read_response(disable_decoding=True, timeout=math.inf))
        except ResponseError as error:
            replies.append(error)
    for reply in replies:
        if isinstance(reply, ResponseError) and _code(reply) in _PASSING:
            raise reply
    return replies


def _code(error: ResponseError) -> str:
    """The first word of the error, as `READONLY`; before Redis 7 that of a script's error comes after a dash."""
    if error.status_code and error.status_code != "ERR":
        return error.status_code
    text = str(error)
    if text.startswith("Error running script") and " -" in text:
        text = text.partition(" -")[2]
    return text.partition(" ")[0]
