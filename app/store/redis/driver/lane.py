"""One connection to Redis and the task that owns it: takes what has queued up, sends it, and reads all replies."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Final, Protocol

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AskError,
    ClusterDownError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from app.core.errors import StoreRefusedError, StoreUnavailableError
from app.runtime.histograms import StoreMeasures
from app.runtime.telemetry import Bursts
from app.store.redis.driver.calls import Call, CallQueue, pack
from app.store.redis.driver.replicas import SHORT_PAUSE_SECONDS, ReplicaWait

BATCH: Final = 128
"""The most calls in one round trip: bounds how long others wait for it."""

_USUAL: Final = 4
"""An answer that takes so many times as long as the one before it is not on its way as usual."""

_AWAY: Final = 3
"""This number of failures in a row, the last of them while a connection was made, is no cut on the way."""

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 1.0

_PASSING: Final = frozenset(
    ("BUSY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN")
)
"""Redis cannot serve now, and will: a script that runs too long, a replica, a full disk, rights not given yet."""

_READS_ONLY: Final = frozenset(("MISCONF", "NOREPLICAS", "OOM"))
"""Redis reads, and refuses what writes: its disk, its replicas or its memory do not allow it."""

ELSEWHERE: Final = (AskError, ClusterDownError, ReadOnlyError, TryAgainError)
"""A member of a Redis Cluster has not got the slot of a call, or not all of it. MOVED is a kind of ASK here."""

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

    def on_cluster(self) -> Script:
        """The same for a Redis Cluster.

        It takes no notice of its last key, which is a guard (app/store/redis/driver/slots.py). PUBLISH counts there who
        listens at this member alone, so it names the home node where it has found nobody.
        """
        text = self.text.replace("return heard\n", "return heard == '0' and home ~= settler and '?' .. home or heard\n")
        return Script.of(f"table.remove(KEYS)\n{text}", writes=self.writes)


class Surroundings(Protocol):
    """The others of a Redis Cluster, as the combiner of one member knows them."""

    def elsewhere(self, away: Sequence[tuple[Call, ResponseError]]) -> None:
        """This member cannot serve these calls, which are not its own from now on."""

    def lost(self) -> None:
        """A connection broke, or none could be made."""


@dataclass(frozen=True, slots=True)
class CombinerOptions:
    """Bounds. `answer_seconds` is how long one round trip may take before the connection counts as dead."""

    name: str = "homing"
    """The name of the connections, as CLIENT LIST shows it."""
    on_demand: bool = False
    """True if, of a Redis Cluster, only primaries that are asked something are connected."""
    lanes: int = 1
    max_queue: int = 10_000
    answer_seconds: float = 2.0
    batch: int = BATCH
    """The most calls in one round trip."""
    wait_replicas: int = 0
    """The replicas that have to have the writes of a call before it is answered."""
    silent_seconds: float = 0.25
    """A batch that has waited for so long while nobody answers a PING shows that Redis is away though its connection
    stands. The time is longer where round trips take longer than usual."""


class Lane:
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
        around: Surroundings | None,
        refusals: Bursts,
    ) -> None:
        self.connected = False
        self.asked_at: float | None = None
        """The instant since which it waits for the answer of Redis to a batch; None while it does not."""
        self.silent = False
        """It waits for an answer, and nobody else gets one either."""
        self.patience = options.silent_seconds
        """The seconds without an answer after which it is worth a look whether others get one."""
        self.refused: Callable[[], None] = lambda: None
        """Called when no connection could be made, and it was not the first failure."""
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
        self._around = around
        self._refusals = refusals
        self._away: list[tuple[Call, ResponseError]] = []
        """Calls of the batch that this member of a cluster cannot serve."""
        self._failures = 0
        self._reads_only = False

    @property
    def writes_wait(self) -> bool:
        """True while what writes gets no answer, and what only reads does."""
        return self._reads_only or self.replicas.short

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
                if self._around is not None:
                    self._around.lost()
                if not self.connected and self._failures >= _AWAY:
                    self.refused()
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
            took, size, waited = self._queue.loop.time() - began, len(batch), began - batch[0].since
            if self._away:
                batch = self._hand_over(batch)
            if self.writes_wait and not all(call.future.done() for call in batch):
                # They go first again, and in their order: what comes behind them may write the same.
                self._queue.give_back(batch)
                await asyncio.sleep(SHORT_PAUSE_SECONDS)
                self._queue.readers_first()
                continue
            self._queue.done(batch)
            self._failures = 0
            self.patience = max(self._silent_seconds, _USUAL * took)
            self._measures.exchanged(size, waited, took)

    def _hand_over(self, batch: Sequence[Call]) -> list[Call]:
        """Give away what this member cannot serve; the rest of the batch."""
        away, self._away = self._away, []
        gone = {call for call, _ in away}
        self._queue.done(list(gone))
        if self._around is not None:
            self._around.elsewhere(away)
        return [call for call in batch if call not in gone]

    async def _exchange(self, connection: AbstractConnection, batch: Sequence[Call]) -> None:
        """Resolve the calls; when some could not be served for now, the last error is raised in the end."""
        self._away = []
        refused = await self._round_trip(connection, batch)
        if refused and all(isinstance(error, NoScriptError) for error in refused.values()):
            # After SCRIPT FLUSH or a restart. Those that failed are sent again, and those that no replica has yet.
            self._counters["store.scripts_reloaded"] += 1
            await self._make_scripts_known(connection)
            away = {call for call, _ in self._away}
            refused = await self._round_trip(
                connection, [one for one in batch if not (one.future.done() or one in away)]
            )
        if refused or any(call.writes for call in batch):
            self._told_of_writes(refused.values())
        for error in () if self._reads_only else refused.values():
            raise error

    def _told_of_writes(self, refused: Collection[ResponseError]) -> None:
        """Note whether Redis takes writes: where it does not, another connection would not help."""
        before, self._reads_only = self._reads_only, bool(refused) and _READS_ONLY.issuperset(map(_code, refused))
        if self._reads_only and not before:
            _log.warning("store_takes_no_writes", reason=str(next(iter(refused))))
        elif before and not refused:
            _log.info("store_takes_writes")

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
                self._refused(call, error, refused)
            else:
                if waits and call.writes:
                    held.append((call, reply))
                else:
                    call.resolve(reply)
        if waits:
            await self._acknowledge(connection, held)
        return refused

    async def _acknowledge(self, connection: AbstractConnection, held: Sequence[tuple[Call, object]]) -> None:
        """Read what WAIT says, and resolve what enough replicas have."""
        try:
            count = int(await connection.read_response(disable_decoding=True, timeout=math.inf))
        except ResponseError as error:
            if self._around is None:
                raise
            # This member of a cluster is a replica itself by now: what it has done counts where its primary is.
            self._away += [(call, error) for call, _ in held]
            return
        if self.replicas.told(count):
            for call, reply in held:
                call.resolve(reply)

    def _refused(self, call: Call, error: ResponseError, again: dict[Call, ResponseError]) -> None:
        """Put it among the calls that are sent again, or elsewhere, or let it fail."""
        if self._around is not None and isinstance(error, ELSEWHERE):
            self._away.append((call, error))
        elif self._may_pass(call, error):
            again[call] = error

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
        if count := self._refusals.count(code):
            _log.error("store_refused", reason=str(error), count=count)
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
        if isinstance(reply, ELSEWHERE) or (isinstance(reply, ResponseError) and _code(reply) in _PASSING):
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
