"""Plain connections that ask a server of Redis a few things, for `homing doctor`. Blocking."""

from __future__ import annotations

from typing import Any, Final

from redis import ConnectionPool, Redis, SSLConnection
from redis.backoff import NoBackoff
from redis.retry import Retry

REPLY_SECONDS: Final = 3.0


class TicketedConnection(SSLConnection):
    """A connection with TLS 1.3, whose server sends session tickets unasked.

    redis-py takes them for the rest of somebody's reply, says "Connection not ready", and gives up.
    """

    def can_read(self, timeout: float = 0) -> bool:
        return timeout > 0 and bool(super().can_read(timeout))


def asking_client(url: str, **login: Any) -> Redis:
    """A client of one server; ValueError when the URL cannot be used."""
    pool = ConnectionPool.from_url(
        url,
        decode_responses=True,
        protocol=2,
        driver_info=None,
        socket_timeout=REPLY_SECONDS,
        socket_connect_timeout=REPLY_SECONDS,
        retry=Retry(NoBackoff(), 0),
        **login,
    )
    if pool.connection_class is SSLConnection:
        pool.connection_class = TicketedConnection
    return Redis.from_pool(pool)
