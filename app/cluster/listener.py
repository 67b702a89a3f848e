"""Listens for wake-ups on one Pub/Sub channel, and notices when nothing can come any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from app.cluster.base import WakeUpHandler
from app.core.clock import Clock
from app.core.wakeup import decode_wake_up
from app.observability import Counters

HEARTBEAT: Final = b"\0heartbeat"
"""What a node sends to its own channel; a wake-up never begins with NUL."""
HEARTBEAT_SECONDS: Final = 1.0
MISSES: Final = 3
"""After so many heartbeats that did not come back the connection counts as dead (F21)."""

_ERRORS: Final = (RedisError, OSError, TimeoutError)


class Listener:
    """One subscription at a time, on a connection of its own; made anew whenever it breaks or falls silent.

    Not redis-py's PubSub: that one reconnects without telling, and what was published meanwhile is lost (F20).
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        counters: Counters,
        on_wake: WakeUpHandler,
        on_resubscribed: Callable[[], None],
    ) -> None:
        self.subscribed = asyncio.Event()
        self._pool = ConnectionPool.from_url(
            url, protocol=2, socket_connect_timeout=HEARTBEAT_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        self._clock = clock
        self._counters = counters
        self._on_wake = on_wake
        self._on_resubscribed = on_resubscribed
        self._heard_at = 0.0
        self._log = structlog.get_logger()

    @property
    def listening(self) -> bool:
        """True while our own heartbeats come back."""
        return self.subscribed.is_set() and self._clock.monotonic() - self._heard_at < MISSES * HEARTBEAT_SECONDS

    async def run(self, channel: str) -> None:
        """Listen until cancelled."""
        while True:
            async for attempt in AsyncRetrying(
                wait=wait_random_exponential(multiplier=0.1, max=1), retry=retry_if_exception_type(_ERRORS)
            ):
                with attempt:
                    await self._listen(self._pool.make_connection(), channel)

    async def _listen(self, connection: AbstractConnection, channel: str) -> None:
        """Returns when a working connection broke; raises when there was none."""
        try:
            await connection.connect()
            await connection.send_command("SUBSCRIBE", channel)
            await self._receive(connection)
        except _ERRORS as error:
            self._counters["wakeup.reconnects"] += 1
            self._log.debug("wake_ups_interrupted", reason=str(error))
            if not self.subscribed.is_set():
                raise
        finally:
            self.subscribed.clear()
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
