"""The rows of a broker in Redis, for the one process that owns them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import structlog

from app.core import keys
from app.core.errors import BrokerTakenOverError, StoreRefusedError, StoreUnavailableError
from app.core.events.keys import epoch as epoch_key
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.tasks import end
from app.store.redis.driver.lane import Argument, CombinerOptions, Script
from app.store.redis.driver.role import RedisRole
from app.store.redis.driver.scripts import SESSION_SCRIPTS, WRITE_AHEAD, WRITE_SESSIONS
from app.store.redis.driver.store_calls import open_calls

PAGE: Final = 1000
"""Rows that are asked for at once when all are read."""
PART_ROWS: Final = 2_000
"""Rows that are written in one step, in which Redis serves nobody else."""
PART_BYTES: Final = 4 * 1024 * 1024
"""Bytes of them, unless it is one row."""
_NUMBER: Final = b"!"
"""The field with the number of the last write. Rows begin with a letter."""
_LATEST: Final = b"#"
"""The field with the number and the last part of a write that is made in parts."""

Rows = Mapping[bytes, bytes | None]
NO_ROWS: Final[Rows] = MappingProxyType({})

_log = structlog.get_logger(__name__)


class RedisSessions:
    """Holds the role `name` while it is open; `start` waits for it as long as another process has it.

    Each write carries the epoch of the role, so one of an owner of before changes nothing. Writes are numbered: one
    that was given up and comes late changes nothing, and a Redis that has forgotten one is noticed.

    A large write is kept beside the rows in parts, which count together from one step on, and then becomes rows part by
    part: Redis stands still for none of them, and whoever takes over in between has all of it.
    """

    def __init__(
        self,
        url: str,
        name: str,
        role: RedisRole,
        *,
        counters: Counter[str],
        budget: float,
        terms: RedisTerms = NO_TERMS,
    ) -> None:
        """`budget` bounds each call, in seconds."""
        self._role = role
        self._keys: Final = [epoch_key(name), keys.broker_rows(name)]
        self._ahead: Final = keys.broker_ahead(name)
        self._budget = budget
        # Whoever calls a node is told within half a second that Redis stands still; a broker would end all connections.
        options = CombinerOptions(
            name="homing-sessions", on_demand=True, wait_replicas=terms.wait_replicas, silent_seconds=budget
        )
        self._redis = open_calls(url, SESSION_SCRIPTS, counters=counters, options=options, terms=terms)
        self._epoch: int | None = None
        self._losing: asyncio.Task[None] | None = None
        self._sent = self._acknowledged = 0
        self._counting: Sequence[Rows] = ()
        """The parts of the last write, which count, and may not be rows yet."""
        self._mistake = ""

    async def start(self) -> Mapping[bytes, bytes]:
        self._redis.start()
        await self._take()
        rows, ahead = await self._all(self._keys[1]), await self._all(self._ahead)
        self._sent = self._acknowledged = int(rows.pop(_NUMBER, 0))
        counts = int(ahead.pop(_NUMBER, -1)) == self._sent
        ahead.pop(_LATEST, None)
        self._counting = list(parts_of({key: _told(row) for key, row in ahead.items()})) if counts else ()
        for key, row in (one for part in self._counting for one in part.items()):
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        await self._settle()
        return rows

    async def close(self) -> None:
        tasks = [] if self._losing is None else [self._losing]
        self._losing = None
        try:
            await end(tasks)
        finally:
            await self._role.close()
            await self._redis.close()

    def check(self) -> None:
        if self._losing is not None and self._losing.done():
            self._mistake = self._mistake or "it has lost its lease in Redis"
        if self._mistake:
            raise BrokerTakenOverError(f"the broker of this node must not go on: {self._mistake}")

    async def write(self, rows: Rows) -> None:
        self.check()
        if self._counting:
            await self._settle()
        self._sent += 1
        parts = list(parts_of(rows)) or [rows]
        if len(parts) == 1:
            await self._write(parts[0])
            self._acknowledged = self._sent
            return
        for place, part in enumerate(parts):
            await self._keep_ahead("put", place, part)
        await self._keep_ahead("count", len(parts))
        self._acknowledged, self._counting = self._sent, parts
        await self._settle()

    async def _settle(self) -> None:
        """Make rows of what counts, and forget the parts."""
        for part in self._counting:
            await self._write(part)
        await self._keep_ahead("forget", 0)
        self._counting = ()

    async def _write(self, part: Rows) -> None:
        await self._run(WRITE_SESSIONS, self._keys, [], part)

    async def _keep_ahead(self, step: str, place: int, part: Rows = NO_ROWS) -> None:
        await self._run(WRITE_AHEAD, [*self._keys, self._ahead], [step, place], part)

    async def _run(self, script: Script, names: Sequence[str], more: Sequence[Argument], part: Rows) -> None:
        put = [word for key, row in part.items() if row is not None for word in (key, row)]
        gone = [key for key, row in part.items() if row is None]
        head: list[Argument] = [self._epoch or 0, self._sent, self._acknowledged, *more, len(put) // 2]
        try:
            said = await self._redis.run_script(script, names, [*head, *put, *gone], self._budget)
        except StoreRefusedError as error:
            raise StoreUnavailableError(f"Redis does not keep sessions: {error}") from None
        if said == b"fenced":
            self._mistake = "another process is the broker"
        elif said != b"yes":
            self._mistake = "Redis has forgotten what it had acknowledged"
        self.check()

    async def _all(self, name: str) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        cursor: Argument = 0
        while True:
            cursor, page = await self._call("HSCAN", name, cursor, "COUNT", PAGE)
            found.update(zip(page[::2], page[1::2], strict=True))
            if int(cursor) == 0:
                return found

    async def _take(self) -> None:
        """Become the owner, if this is not one yet."""
        if self._losing is not None and not self._losing.done():
            return
        waiting = asyncio.get_running_loop().call_later(1, lambda: _log.info("broker_stands_by"))
        try:
            await self._role.release()
            self._epoch = await self._role.hold()
        finally:
            waiting.cancel()
        self._losing = asyncio.create_task(self._role.lost(), name="role of the broker")

    async def _call(self, *command: Argument) -> tuple[bytes, list[bytes]]:
        try:
            reply: tuple[bytes, list[bytes]] = await self._redis.call(command, self._budget)
        except StoreRefusedError as error:
            raise StoreUnavailableError(f"Redis does not give sessions: {error}") from None
        return reply


def parts_of(rows: Rows) -> Iterator[Rows]:
    """Yield the rows in parts, none of which keeps Redis from others for long."""
    part: dict[bytes, bytes | None] = {}
    size = 0
    for key, row in rows.items():
        more = len(key) + len(row or b"")
        if part and (len(part) >= PART_ROWS or size + more > PART_BYTES):
            yield part
            part, size = {}, 0
        part[key] = row
        size += more
    if part:
        yield part


def _told(row: bytes) -> bytes | None:
    """The row of which this is kept ahead; None deletes it."""
    return row[1:] if row.startswith(b"+") else None
