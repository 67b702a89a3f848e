"""Calls beside the combiner: few, and each with a time limit of its own. The cluster speaks to Redis so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, cast

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError, RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from app.core.errors import StoreRefusedError, StoreUnavailableError
from app.core.redis_address import NO_TERMS, RedisKind, RedisTerms, parse_redis_url
from app.runtime.telemetry import Counters
from app.store.redis.driver.lane import CombinerOptions, Script
from app.store.redis.driver.outages import is_connection_error
from app.store.redis.driver.server import url_arguments
from app.store.redis.driver.store_calls import open_calls

MOST_CONNECTIONS: Final = 16
"""The connections of one PlainRedis. A call beyond them waits, or a slow Redis would get one for each call."""

_NAME: Final = "homing-cluster"

_Reply = TypeVar("_Reply")


class FewCalls(Protocol):
    """The few calls that a cluster makes. All of them raise StoreUnavailableError."""

    async def run(self, script: str, script_keys: Sequence[str], *arguments: object) -> Any:  # noqa: ANN401 - its reply
        """The reply of a script."""

    async def call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command."""

    async def call_many(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        """The replies of commands that travel as one."""

    async def close(self) -> None:
        """Let go of all connections."""


def few_calls(
    url: str,
    *,
    scripts: Mapping[str, str],
    timeout: float,
    became_replica: Callable[[], Awaitable[None]],
    counters: Counters,
    terms: RedisTerms = NO_TERMS,
) -> FewCalls:
    """By plain connections, or by a router where the URL is of a Redis Cluster; ValueError for a wrong URL."""
    if parse_redis_url(url).kind is RedisKind.CLUSTER:
        return RoutedRedis(url, scripts=scripts, timeout=timeout, counters=counters)
    return PlainRedis(url, scripts=scripts, timeout=timeout, became_replica=became_replica, terms=terms)


class PlainRedis:
    """Connects when it is asked something. All calls raise StoreUnavailableError when Redis does not answer in time.

    `timeout` in seconds. `became_replica` is awaited when Redis takes no writes any more: its address may lead to the
    new primary, but only a new connection finds out.
    """

    def __init__(
        self,
        url: str,
        *,
        scripts: Mapping[str, str],
        timeout: float,
        became_replica: Callable[[], Awaitable[None]],
        terms: RedisTerms = NO_TERMS,
    ) -> None:
        options: dict[str, Any] = {
            "client_name": _NAME,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            # With them, redis-py 8 hands out connections that Redis has closed: each would fail a call.
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        }
        self._redis: Redis = Redis.from_pool(
            BlockingConnectionPool(
                max_connections=MOST_CONNECTIONS,
                timeout=timeout,
                **options,
                retry=Retry(NoBackoff(), 0),
                **url_arguments(url, terms),
            )
        )
        self._scripts = {name: self._redis.register_script(text) for name, text in scripts.items()}
        self._became_replica = became_replica

    async def run(self, script: str, script_keys: Sequence[str], *arguments: object) -> Any:  # noqa: ANN401 - its reply
        """The reply of a script."""
        return await self._ask(self._scripts[script](keys=script_keys, args=cast("Sequence[Any]", arguments)))

    async def call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command."""
        return await self._ask(self._redis.execute_command(*command))

    async def call_many(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        """The replies of commands that travel as one."""
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return await self._ask(pipeline.execute())

    async def close(self) -> None:
        """Let go of all connections."""
        await self._redis.aclose()

    async def _ask(self, reply: Awaitable[_Reply]) -> _Reply:
        try:
            return await reply
        except Exception as error:
            if not is_connection_error(error):
                raise
            if isinstance(error, ReadOnlyError) or (isinstance(error, ResponseError) and "READONLY" in str(error)):
                await self._look_for_the_primary()
            raise StoreUnavailableError(f"Redis did not answer the cluster: {error}") from None

    async def _look_for_the_primary(self) -> None:
        with suppress(RedisError, OSError, RuntimeError):
            await self._redis.connection_pool.disconnect(inuse_connections=False)
            await self._became_replica()


class RoutedRedis:
    """The same on a Redis Cluster, whose keys are those of several primaries."""

    def __init__(self, url: str, *, scripts: Mapping[str, str], timeout: float, counters: Counters) -> None:
        self._scripts = {name: Script.of(text) for name, text in scripts.items()}
        self._redis = open_calls(
            url, list(self._scripts.values()), counters=counters, options=CombinerOptions(name=_NAME)
        )
        self._timeout = timeout

    async def run(self, script: str, script_keys: Sequence[str], *arguments: object) -> Any:  # noqa: ANN401 - its reply
        """The reply of a script."""
        self._redis.start()
        given = cast("Sequence[str | bytes | int]", arguments)
        return await self._ask(self._redis.run_script(self._scripts[script], script_keys, given, self._timeout))

    async def call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command."""
        self._redis.start()
        return await self._ask(self._redis.call(command, self._timeout))

    async def call_many(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        """The replies of commands that travel as one for each slot."""
        self._redis.start()
        replies = await self._ask(self._redis.call_many(commands, self._timeout))
        for one in replies:
            if isinstance(one, Exception):
                raise StoreUnavailableError(f"Redis did not answer the cluster: {one}")
        return replies

    async def close(self) -> None:
        """Let go of all connections."""
        await self._redis.close()

    async def _ask(self, reply: Awaitable[_Reply]) -> _Reply:
        try:
            return await reply
        except StoreRefusedError as error:
            raise StoreUnavailableError(f"Redis did not answer the cluster: {error}") from None
