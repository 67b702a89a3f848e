"""The rows of a broker in Redis, for the one process that owns them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

import structlog

from app.core import keys
from app.core.errors import BrokerTakenOverError, StoreRefusedError, StoreUnavailableError
from app.core.events.keys import epoch as epoch_key
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.tasks import end
from app.store.redis.driver.lane import Argument, CombinerOptions
from app.store.redis.driver.role import RedisRole
from app.store.redis.driver.scripts import WRITE_SESSIONS
from app.store.redis.driver.store_calls import open_calls

PAGE: Final = 1000
"""Rows that are asked for at once when all are read."""
_NUMBER: Final = b"!"
"""The field with the number of the last write. Rows begin with a letter."""

_log = structlog.get_logger(__name__)


class RedisSessions:
    """Holds the role `name` while it is open; `start` waits for it as long as another process has it.

    Each write carries the epoch of the role, so one of an owner of before changes nothing. Writes are numbered: one
    that was given up and comes late changes nothing, and a Redis that has forgotten one is noticed.
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
        self._budget = budget
        options = CombinerOptions(wait_replicas=terms.wait_replicas)
        self._redis = open_calls(url, [WRITE_SESSIONS], counters=counters, options=options, terms=terms)
        self._epoch: int | None = None
        self._losing: asyncio.Task[None] | None = None
        self._sent = self._acknowledged = 0
        self._mistake = ""

    async def start(self) -> Mapping[bytes, bytes]:
        self._redis.start()
        await self._take()
        rows: dict[bytes, bytes] = {}
        cursor: Argument = 0
        while True:
            cursor, page = await self._call("HSCAN", self._keys[1], cursor, "COUNT", PAGE)
            rows.update(zip(page[::2], page[1::2], strict=True))
            if int(cursor) == 0:
                break
        self._sent = self._acknowledged = int(rows.pop(_NUMBER, 0))
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

    async def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        self.check()
        put = [part for key, row in rows.items() if row is not None for part in (key, row)]
        gone = [key for key, row in rows.items() if row is None]
        self._sent += 1
        number = self._sent
        arguments: list[Argument] = [self._epoch or 0, number, self._acknowledged, len(put) // 2, *put, *gone]
        try:
            said = await self._redis.run_script(WRITE_SESSIONS, self._keys, arguments, self._budget)
        except StoreRefusedError as error:
            raise StoreUnavailableError(f"Redis does not keep sessions: {error}") from None
        if said == b"fenced":
            self._mistake = "another process is the broker"
        elif said != b"yes":
            self._mistake = "Redis has forgotten what it had acknowledged"
        self.check()
        self._acknowledged = number

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
