"""The calls of the event log to Redis. A refusal for good, or a value in another form than ours, counts as away.

Somebody else has written it, or a version that this one does not know: it is left as it is, and may be mended there.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from redis.exceptions import ResponseError

from app.core.errors import DamagedEventsError, StoreRefusedError, StoreUnavailableError
from app.core.redis_address import NO_TERMS, RedisTerms, parse_redis_url
from app.runtime.telemetry import Fill
from app.store.redis.driver.lane import Argument, CombinerOptions, Script
from app.store.redis.driver.scripts import EVENT_SCRIPTS
from app.store.redis.driver.server import ServerWatch, parse_info
from app.store.redis.driver.store_calls import open_calls


class EventCalls:
    """Every call has this budget, in seconds, and raises StoreUnavailableError. ConfigurationError for a wrong URL."""

    def __init__(
        self,
        url: str,
        counters: Counter[str],
        budget: float,
        scripts: Sequence[Script] = EVENT_SCRIPTS,
        terms: RedisTerms = NO_TERMS,
        name: str = "homing-events",
    ) -> None:
        self._budget = budget
        self._options: Final = CombinerOptions(name=name, wait_replicas=terms.wait_replicas)
        self._redis = open_calls(url, scripts, counters=counters, options=self._options, terms=terms)
        self.watch: Final = ServerWatch(self._infos, counters, parse_redis_url(url).kind)
        self._closed = False

    async def start(self) -> None:
        """Begin, and look whether this Redis may hold events."""
        self._redis.start()
        try:
            async with asyncio.timeout(self._options.answer_seconds):
                await self._redis.call(("PING",), None)
        except TimeoutError:
            reason = self._redis.last_error or f"no answer within {self._options.answer_seconds:g} s"
            raise StoreUnavailableError(f"the Redis of the event log cannot be used now: {reason}") from None
        self.watch.check_all(map(parse_info, await self._infos()))

    async def _infos(self) -> Sequence[bytes]:
        with self._usable():
            return await self._redis.everywhere(("INFO",), self._budget)

    async def close(self) -> None:
        """Let go of the connections."""
        self._closed = True
        await self._redis.close()

    def fill(self) -> Fill:
        """Return how many calls wait."""
        return Fill(self._redis.outstanding, self._options.max_queue)

    async def call(self, *command: Argument) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command."""
        with self._usable():
            return await self._redis.call(command, self._budget)

    async def call_many(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """The replies of commands that travel as one."""
        with self._usable():
            replies = await self._redis.call_many(commands, self._budget)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ResponseError):
                raise unreadable(str(command[1]), reply)
        return replies

    def server_of(self, key: str) -> str:
        """The name of the server that has this key; empty where there is one for all."""
        return self._redis.server_of(key)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:  # noqa: ANN401 - what the script replies
        """The reply of a script."""
        with self._usable():
            return await self._redis.run_script(script, keys, arguments, self._budget)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        if self._closed:
            raise StoreUnavailableError("the event log is closed")
        try:
            yield
        except StoreRefusedError as error:
            raise StoreUnavailableError(f"the event log in Redis cannot be used: {error}") from None


@contextmanager
def parsing(key: str) -> Iterator[None]:
    """Read what a key has meanwhile; StoreUnavailableError where it is not as we write it."""
    try:
        yield
    except (ValueError, TypeError, struct.error, DamagedEventsError) as error:
        raise unreadable(key, error) from None


def unreadable(key: str, error: Exception) -> StoreUnavailableError:
    """The error where a key is not as we write it."""
    return StoreUnavailableError(f"the event log in Redis cannot be read: {key}: {error}")
