"""The cluster over Redis: leases as keys with an expiry, wake-ups over Pub/Sub channels named after the nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from app.cluster.base import NodeInfo, WakeUpHandler
from app.core import keys
from app.core.clock import Clock
from app.core.errors import NodeIdTakenError, StoreUnavailableError
from app.core.wakeup import decode_wake_up
from app.observability import Counters

HEARTBEAT: Final = b"\0heartbeat"
"""What a node sends to its own channel; a wake-up never begins with NUL."""
HEARTBEAT_SECONDS: Final = 1.0
MISSES: Final = 3
"""After so many heartbeats that did not come back the connection counts as dead (F21)."""

# Both compare the lease before they touch it: KEYS[1] lease, ARGV[1] its value, ARGV[2] its time in ms.
_RENEW: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
_RELEASE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
_ERRORS: Final = (RedisError, OSError, TimeoutError)


class RedisCluster:
    """Leases and wake-ups; what Redis does to the connection is repaired in the background and counted."""

    def __init__(
        self,
        url: str,
        *,
        lease: timedelta,
        clock: Clock,
        counters: Counters,
        on_wake: WakeUpHandler,
        on_resubscribed: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._url = url
        self._lease_ms = round(lease / timedelta(milliseconds=1))
        self._clock = clock
        self._counters = counters
        self._on_wake = on_wake
        self._on_resubscribed = on_resubscribed
        self._on_failure = on_failure
        timeout = lease.total_seconds() / 3
        self._redis: Redis = Redis.from_url(
            url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0)
        )
        self._node: NodeInfo | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._heard_at: float | None = None
        self._subscribed = asyncio.Event()
        self._log = structlog.get_logger()

    @property
    def listening(self) -> bool:
        """True while heartbeats on our own channel come back."""
        return (
            self._subscribed.is_set()
            and self._heard_at is not None
            and self._clock.monotonic() - self._heard_at < MISSES * HEARTBEAT_SECONDS
        )

    async def join(self, node: NodeInfo) -> None:
        """Take the lease; StoreUnavailableError when Redis does not answer."""
        try:
            await self._take(node)
        except _ERRORS as error:
            raise StoreUnavailableError(f"the lease of {node.node_id} could not be taken: {error}") from None
        self._node = node
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._listen(keys.node_channel(node.node_id)), name="cluster.listen"),
            loop.create_task(self._renew(node), name="cluster.renew"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        await self._subscribed.wait()

    async def leave(self) -> None:
        """Give up the lease where it is still ours."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._node is not None:
            node, self._node = self._node, None
            with suppress(*_ERRORS):
                if await self._redis.eval(_RELEASE, 1, keys.lease(node.node_id), _encode(node)):
                    await self._redis.zrem(keys.NODES, node.node_id)
        await self._redis.aclose()

    async def nodes(self) -> Sequence[NodeInfo]:
        """The nodes that hold a lease now, by node id."""
        try:
            members = await self._redis.zrange(keys.NODES, 0, -1)
            if not members:
                return []
            ids = sorted(_text(member) for member in members)
            leases = await asyncio.gather(*(self._redis.get(keys.lease(node_id)) for node_id in ids))
        except _ERRORS as error:
            raise StoreUnavailableError(f"the list of nodes could not be read: {error}") from None
        return [_decode(_text(lease)) for lease in leases if lease is not None]

    async def _take(self, node: NodeInfo) -> None:
        lease, value = keys.lease(node.node_id), _encode(node)
        if not await self._redis.set(lease, value, px=self._lease_ms, nx=True):
            held = await self._redis.get(lease)
            if held is not None and held != value:
                raise NodeIdTakenError(node.node_id)
            await self._redis.set(lease, value, px=self._lease_ms)
        await self._list(node)

    async def _list(self, node: NodeInfo) -> None:
        """Keep the directory: one sorted set whose members end with their lease."""
        seconds, microseconds = await self._redis.time()
        now = seconds * 1000 + microseconds // 1000
        await self._redis.zadd(keys.NODES, {node.node_id: now + self._lease_ms})
        await self._redis.zremrangebyscore(keys.NODES, "-inf", now)
        await self._redis.pexpire(keys.NODES, 2 * self._lease_ms)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Neither task ends by itself, unless the lease went to another incarnation or there is a bug."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)

    async def _renew(self, node: NodeInfo) -> None:
        """Show a sign of life every heartbeat: the lease, and a message to our own channel."""
        lease, value, channel = keys.lease(node.node_id), _encode(node), keys.node_channel(node.node_id)
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                if not await self._redis.eval(_RENEW, 1, lease, value, self._lease_ms):
                    self._counters["lease.expired"] += 1
                    await self._take(node)
                await self._list(node)
                await self._redis.publish(channel, HEARTBEAT)
            except _ERRORS as error:
                self._counters["lease.renewal_failed"] += 1
                self._log.debug("lease_not_renewed", reason=str(error))

    async def _listen(self, channel: str) -> None:
        """Subscribe, and subscribe again whenever the connection breaks or falls silent."""
        pool = ConnectionPool.from_url(
            self._url, protocol=2, socket_connect_timeout=HEARTBEAT_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        while True:
            async for attempt in AsyncRetrying(
                wait=wait_random_exponential(multiplier=0.1, max=1), retry=retry_if_exception_type(_ERRORS)
            ):
                with attempt:
                    await self._listen_once(pool.make_connection(), channel)

    async def _listen_once(self, connection: AbstractConnection, channel: str) -> None:
        """Returns when a working connection broke; raises when there was none."""
        try:
            await connection.connect()
            await connection.send_command("SUBSCRIBE", channel)
            await self._receive(connection)
        except _ERRORS as error:
            self._counters["wakeup.reconnects"] += 1
            self._log.debug("wake_ups_interrupted", reason=str(error))
            if not self._subscribed.is_set():
                raise
        finally:
            self._subscribed.clear()
            await connection.disconnect(nowait=True)

    async def _receive(self, connection: AbstractConnection) -> None:
        """Handle what comes in; TimeoutError when nothing does, not even our own heartbeat."""
        while True:
            received = await connection.read_response(timeout=MISSES * HEARTBEAT_SECONDS, disconnect_on_error=False)
            if received is None:
                raise TimeoutError("not even our own heartbeat came back")
            kind, _, data = received
            self._heard_at = self._clock.monotonic()
            if kind == b"subscribe":
                self._subscribed.set()
                # Whatever was published while nobody listened is gone for good (F20).
                self._on_resubscribed()
            elif kind == b"message" and data != HEARTBEAT:
                self._wake(data)

    def _wake(self, data: bytes) -> None:
        try:
            command_id, outcome = decode_wake_up(data)
        except ValueError:
            self._counters["drop.bad_wake_up"] += 1
            return
        self._on_wake(command_id, outcome)


def _encode(node: NodeInfo) -> bytes:
    return json.dumps(asdict(node), sort_keys=True).encode()


def _decode(lease: str) -> NodeInfo:
    return NodeInfo(**json.loads(lease))


def _text(reply: object) -> str:
    """A reply that is a string; its stated type depends on options that we do not set."""
    return reply.decode() if isinstance(reply, bytes) else str(reply)
