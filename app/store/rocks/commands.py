"""The state store of one process, in a folder: the semantics of the one in memory, whose changes are rows on the disk.

Each call changes memory, gives the changed rows to the batch that all drawers of the folder share, and returns when
they are synced. What is read is returned when it is: nobody sees an outcome that a crash takes back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from app.core.clock import Clock
from app.core.cluster.wakekey import WakeKey
from app.core.commands.approval import ApprovalDecision
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import Command, CommandState
from app.core.commands.history import Account
from app.core.commands.routing import Follower, Outcome, Recorded
from app.core.commands.stream import Marks, StreamPage
from app.core.errors import StoreUnavailableError
from app.core.memory import RECORDS_BYTES
from app.core.profiles.lanes import CommandLane
from app.core.profiles.probes import ProbeFinding
from app.runtime.telemetry import Fill
from app.store.commands import CommandSlice, Finished, Joined, Query, Registered
from app.store.holds import Claimed, Decided, HeldEntries, LaneOccupancy, Restarted, Resumed, Waits
from app.store.memory.commands.records import COMMAND_ROW, RowKey
from app.store.memory.commands.store import MemoryStateStore
from app.store.memory.commands.writer import Tell, Wake
from app.store.rocks.fleets import RocksFleets
from app.store.rocks.folder import RocksFolder
from app.store.rocks.kept_state import KeptState, key_of, row_of
from app.store.rocks.rowtable import RowTable
from app.store.rocks.schedules import RocksSchedules
from app.store.rocks.webhooks import RocksWebhooks
from app.store.server_starts import OneStart

FAMILY: Final = "commands"
AGAIN_SECONDS: Final = 0.2

T = TypeVar("T")


class RocksStateStore:
    """A drawer of a folder. `max_bytes`, `wake` and `tell` are as those of MemoryStateStore; `budget` bounds a call."""

    def __init__(
        self,
        folder: RocksFolder,
        clock: Clock,
        counters: Counter[str],
        *,
        budget: timedelta = timedelta(seconds=2),
        max_bytes: int = RECORDS_BYTES,
        wake: Wake | None = None,
        wake_key: WakeKey | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._counters = counters
        self._budget = budget.total_seconds()
        self._max_bytes = max_bytes
        self._wakes: Final = (wake, wake_key, tell)
        self._table: Final = RowTable(folder, FAMILY, self._load)
        self._changed: dict[RowKey, None] = {}
        self._unwritten: dict[RowKey, asyncio.Future[None]] = {}
        self._last: asyncio.Future[None] | None = None
        self._memory = MemoryStateStore(clock, max_bytes=max_bytes)
        self._closed = False
        self.webhooks: Final = RocksWebhooks(self.change)
        self.states: Final = RocksEchoStates(self)
        self.changes: Final = RocksCommandChanges(self)
        self.fleets: Final = RocksFleets(self.change)
        self.starts: Final = OneStart()
        self.schedules: Final = RocksSchedules(self.change)

    async def start(self) -> None:
        await self._folder.start(self._table)
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        if self._last is not None:  # for which perhaps nobody waits
            await asyncio.wait([self._last], timeout=self._budget)
        await self._folder.close(self._table)

    async def ping(self) -> None:
        with self._folder.using():
            self._table.check()

    def fills(self) -> dict[str, Fill]:
        table = self._memory.table
        return {"records": Fill(table.taken, table.max_bytes), "store_writes": self._folder.fill()}

    @property
    def size(self) -> int:
        """Return how many records and index entries there are: 0 when nothing is left."""
        return self._memory.size

    async def now(self) -> int:
        return self._memory.table.now()

    async def date(self) -> int:
        return self._memory.table.date()

    async def get(self, command_ids: Sequence[str]) -> list[Command | None]:
        return await self.look(lambda memory: memory.get(command_ids), lambda _: command_ids)

    async def read(self, command_id: str) -> Command:
        return await self.look(lambda memory: memory.read(command_id), lambda _: [command_id])

    async def outcomes(self, command_ids: Sequence[str]) -> list[Outcome | None]:
        return await self.look(lambda memory: memory.outcomes(command_ids), lambda _: command_ids)

    async def list_commands(self, query: Query) -> CommandSlice:
        return await self.look(lambda memory: memory.list_commands(query), lambda found: _ids(found.commands))

    async def pending_of(self, node_id: str, limit: int = 1000) -> list[Command]:
        return await self.look(lambda memory: memory.pending_of(node_id, limit), _ids)

    async def follow(self, command_id: str, after: int = 0, watcher: str | None = None) -> Account:
        return await self.look(lambda memory: memory.follow(command_id, after, watcher), lambda _: [command_id])

    async def register(self, registration: Registration) -> Registered | Joined:
        return await self.change(lambda memory: memory.register(registration))

    async def respond(self, answer: Answer, receiver: str, *, open_only: bool = False) -> Recorded:
        while True:
            try:
                return await self._step(lambda memory: memory.respond(answer, receiver, open_only=open_only))
            except StoreUnavailableError:
                if self._closed:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    async def finish(
        self,
        command_id: str,
        state: CommandState,
        finisher: str,
        error: bytes | None = None,
        *,
        only_held: bool = False,
    ) -> Finished:
        return await self.change(lambda memory: memory.finish(command_id, state, finisher, error, only_held=only_held))

    async def confirm(self, command_id: str, finding: ProbeFinding, finder: str) -> Finished:
        return await self.change(lambda memory: memory.confirm(command_id, finding, finder))

    async def verify(self, command_id: str, finding: ProbeFinding) -> bool:
        return await self.change(lambda memory: memory.verify(command_id, finding))

    async def mark(self, command_id: str, state: CommandState, sender: str | None = None) -> bool:
        return await self.change(lambda memory: memory.mark(command_id, state, sender))

    async def sweep(self, partitions: Sequence[int], finisher: str, grace: timedelta) -> list[Outcome]:
        return await self.change(lambda memory: memory.sweep(partitions, finisher, grace))

    async def held(self) -> HeldEntries:
        return await self.look(lambda memory: memory.held(), lambda found: [one.command_id for one in found])

    async def last_held(self) -> str:
        return await self.look(lambda memory: memory.last_held(), lambda _: ())

    async def lane_now(self, device_id: str, lane: CommandLane) -> LaneOccupancy:
        return await self.look(lambda memory: memory.lane_now(device_id, lane), lambda found: found.waiting)

    async def claim(
        self, command_id: str, node_id: str, token: str, starts: Collection[str] = ()
    ) -> Claimed | Waits | Restarted | None:
        del starts  # what was answered is on the disk
        return await self.change(lambda memory: memory.claim(command_id, node_id, token))

    async def decide(self, command_id: str, decision: ApprovalDecision, finisher: str) -> Decided:
        return await self.change(lambda memory: memory.decide(command_id, decision, finisher))

    async def pass_on(self, command_id: str) -> Follower | None:
        return await self.change(lambda memory: memory.pass_on(command_id))

    async def resume(self, device_id: str, lane: str, stopped_by: str) -> Resumed:
        return await self.change(lambda memory: memory.resume(device_id, lane, stopped_by))

    async def turn_to_ask(self, device_id: str, command_id: str) -> str:
        return await self.look(lambda memory: memory.turn_to_ask(device_id, command_id), lambda _: ())

    async def give_back(self, command_id: str, token: str) -> bool:
        return await self.change(lambda memory: memory.give_back(command_id, token))

    async def change(self, work: Callable[[MemoryStateStore], Awaitable[T]]) -> T:
        """Return what a step returns, once all changes up to it are durable; StoreUnavailableError."""
        return await self._in_time(self._step(work))

    async def look(self, work: Callable[[MemoryStateStore], Awaitable[T]], ids_of: Callable[[T], Iterable[str]]) -> T:
        """Return what a question finds, once all is durable of the commands that it is about; StoreUnavailableError."""

        async def looked() -> T:
            with self._folder.using():
                self._table.check()
                found = await work(self._memory)
                self._write()
                for one in ids_of(found):
                    unwritten = self._unwritten.get((COMMAND_ROW, one))
                    if unwritten is not None:
                        await asyncio.shield(unwritten)
                return found

        return await self._in_time(looked())

    async def _step(self, work: Callable[[MemoryStateStore], Awaitable[T]]) -> T:
        with self._folder.using():
            self._table.check()
            try:
                result = await work(self._memory)  # which waits for nothing, so it is one step
            finally:
                self._write()
            if self._last is not None:
                await asyncio.shield(self._last)
            return result

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._budget):
                return await work
        except TimeoutError:
            raise StoreUnavailableError(f"the store did not answer within {self._budget:g} s") from None

    def _write(self) -> None:
        """Give what has changed to the next batch."""
        if not self._changed:
            return
        keys = [*self._changed]
        self._changed.clear()
        try:
            future = self._table.write({key_of(one): row_of(self._memory, one) for one in keys})
        except StoreUnavailableError:
            self._table.lost()  # memory has it, and the disk will never
            raise
        self._last = future
        self._unwritten |= dict.fromkeys(keys, future)

        def written(_: object) -> None:
            for key in keys:
                if self._unwritten.get(key) is future:
                    del self._unwritten[key]
            if self._last is future:
                self._last = None

        future.add_done_callback(written)

    def _load(self, rows: Mapping[bytes, bytes]) -> None:
        kept = KeptState(rows, self._counters)
        wake, wake_key, tell = self._wakes
        memory = MemoryStateStore(
            self._clock,
            max_bytes=self._max_bytes,
            wake=wake,
            wake_key=wake_key,
            tell=tell,
            changed=self._changed.setdefault,
            not_before=kept.latest,
        )
        kept.restore(memory)
        self._changed.clear()
        self._memory = memory


class RocksEchoStates:
    """`app/store/echo_states.py`."""

    def __init__(self, store: RocksStateStore) -> None:
        self._store = store

    async def expecting(self, device_id: str, topic: str, within: timedelta) -> Sequence[Command]:
        return await self._store.look(lambda memory: memory.states.expecting(device_id, topic, within), _ids)

    async def tell_state(self, device_id: str, topic: str, state: bytes, keep: timedelta) -> None:
        # Nobody was promised that it is remembered, so nobody waits for the disk.
        await self._store.look(lambda memory: memory.states.tell_state(device_id, topic, state, keep), lambda _: ())

    async def last_state(self, device_id: str, topic: str) -> bytes | None:
        return await self._store.look(lambda memory: memory.states.last_state(device_id, topic), lambda _: ())


class RocksCommandChanges:
    """`app/store/command_stream.py`: in memory, and begun anew with each start. What is told is durable."""

    def __init__(self, store: RocksStateStore) -> None:
        self._store = store

    async def keep(self, duration: timedelta, told_ms: int = 0) -> int:
        return await self._store.look(lambda memory: memory.changes.keep(duration, told_ms), lambda _: ())

    async def after(self, marks: Marks) -> StreamPage:
        return await self._store.look(
            lambda memory: memory.changes.after(marks), lambda page: {one.command_id for one in page.changes}
        )


def _ids(commands: Sequence[Command]) -> list[str]:
    return [one.id for one in commands]
