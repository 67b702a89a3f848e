"""Listens on one Pub/Sub channel, and notices when nothing can come any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from tenacity import AsyncRetrying, retry_if_exception, wait_random_exponential

from app.core.clock import Clock
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.telemetry import Counters
from app.store.redis.driver.outages import is_connection_error
from app.store.redis.driver.server import url_arguments
from app.store.redis.driver.topology import MemberConnection

HEARTBEAT: Final = b"\0heartbeat"
"""The message that a node sends to its own channel; nothing else that is said there begins with NUL and goes on so."""
HEARTBEAT_SECONDS: Final = 1.0
MISSES: Final = 3
"""After so many heartbeats that did not come back the connection counts as dead, though neither side said so."""


class Listener:
    """One subscription at a time, on a connection of its own; made anew whenever it breaks or falls silent.

    `name` is what CLIENT LIST shows. `heard` is told each message but our own heartbeats, `resubscribed` that what came
    until now may have been lost.

    Not redis-py's PubSub: that one reconnects without telling, and what was published meanwhile is lost.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "homing",
        clock: Clock,
        counters: Counters,
        heard: Callable[[bytes], None],
        resubscribed: Callable[[], None],
        terms: RedisTerms = NO_TERMS,
    ) -> None:
        self.subscribed = asyncio.Event()
        options: dict[str, Any] = {"protocol": 2, "client_name": name, "socket_connect_timeout": HEARTBEAT_SECONDS}
        self._pool = ConnectionPool(**options, retry=Retry(NoBackoff(), 0), **url_arguments(url, terms))
        self._clock = clock
        self._counters = counters
        self._heard = heard
        self._resubscribed = resubscribed
        self._connection: AbstractConnection | None = None
        self._heard_at = 0.0
        self._log = structlog.get_logger()

    @property
    def listening(self) -> bool:
        """True while our own heartbeats come back."""
        return self.subscribed.is_set() and self._clock.monotonic() - self._heard_at < MISSES * HEARTBEAT_SECONDS

    async def reconnect(self) -> None:
        """Give the connection up for a new one, as the address may lead elsewhere by now."""
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

    async def run(self, channel: str) -> None:
        """Listen until cancelled."""
        while True:
            async for attempt in AsyncRetrying(
                wait=wait_random_exponential(multiplier=0.1, max=1), retry=retry_if_exception(is_connection_error)
            ):
                with attempt:
                    await self._listen(self._pool.make_connection(), channel)

    async def _listen(self, connection: AbstractConnection, channel: str) -> None:
        """Returns when a working connection broke; raises when there was none."""
        if isinstance(connection, MemberConnection):
            connection.channel = channel
        try:
            await connection.connect()
            self._connection = connection
            await connection.send_command("SUBSCRIBE", channel)
            await self._receive(connection)
        except Exception as error:
            if not is_connection_error(error):
                raise
            self._counters["wakeup.reconnects"] += 1
            self._log.debug("wake_ups_interrupted", reason=str(error))
            if not self.subscribed.is_set():
                raise
        finally:
            self.subscribed.clear()
            self._connection = None
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
                self.subscribed.set()
                # Whatever was published while nobody listened is gone for good.
                self._resubscribed()
            elif kind == b"message" and data != HEARTBEAT:
                self._heard(data)
