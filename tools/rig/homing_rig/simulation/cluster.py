"""The cluster of a simulated node: the product's own over Redis, on a connection that is simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, cast

from redis.asyncio.connection import ConnectionPool

from app.cluster.channel import ChannelReader
from app.cluster.redis import RedisCluster
from app.cluster.wakeups import ChannelHandlers
from app.core.clock import Clock
from app.core.cluster.charter import Charter
from app.runtime.telemetry import Counters
from app.store.redis.driver.listener import Listener
from app.store.redis.driver.plain import PlainRedis
from homing_rig.simulation.redis import RedisModel
from homing_rig.simulation.store import StorePlaces, Wire

URL = "redis://simulated"


class SimCluster(RedisCluster):
    """All of it is the product's but the scripts and the sockets."""

    def __init__(
        self,
        places: StorePlaces,
        keys: RedisModel,
        *,
        lease: timedelta,
        session_life: timedelta,
        clock: Clock,
        counters: Counters,
        new_charter: Callable[[], Charter],
        handlers: ChannelHandlers,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__(
            URL,
            lease=lease,
            session_life=session_life,
            clock=clock,
            counters=counters,
            new_charter=new_charter,
            handlers=handlers,
            on_failure=on_failure,
        )
        self._listener = _SimListener(places, clock, counters, handlers)
        self._redis = cast("PlainRedis", _SimPlain(places.cluster, keys, lease.total_seconds() / 3))


class _SimListener(Listener):
    def __init__(self, places: StorePlaces, clock: Clock, counters: Counters, handlers: ChannelHandlers) -> None:
        super().__init__(
            URL,
            clock=clock,
            counters=counters,
            heard=ChannelReader(handlers, counters).read,
            resubscribed=handlers.resubscribed,
        )
        self._pool = cast("ConnectionPool", places)


class _SimPlain:
    """`PlainRedis` over a simulated connection."""

    def __init__(self, wire: Wire, keys: RedisModel, timeout: float) -> None:
        self._wire = wire
        self._keys = keys
        self._timeout = timeout

    async def run(self, script: str, script_keys: Sequence[str], *arguments: object) -> Any:  # noqa: ANN401 - its reply
        return await self._ask(partial(self._keys.run, script, script_keys, *arguments))

    async def call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis replies
        return await self._ask(partial(self._keys.call, *command))

    async def call_many(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        replies: list[Any] = await self._ask(lambda: [self._keys.call(*one) for one in commands])
        return replies

    async def close(self) -> None:
        self._wire.close()

    async def _ask(self, effect: Callable[[], Any]) -> Any:  # noqa: ANN401 - as its callers
        return await self._wire.ask(effect, self._timeout, again=False)
