"""Connections to Redis with TLS, which share what they know of certificates."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

from redis.asyncio.connection import Connection, RedisSSLContext, SSLConnection, parse_url
from redis.exceptions import ConnectionError as RedisConnectionError

MOST_CONTEXTS: Final = 32

_contexts: Final[dict[Hashable, RedisSSLContext]] = {}


class TlsConnection(SSLConnection):
    """A connection with TLS.

    To read all authorities of a machine takes 50 ms, in which nothing else runs, and redis-py does so for each
    connection. These do it once for all that have the same parameters, and again when a file is another.
    """

    async def _connect(self) -> None:
        self.ssl_context = _shared(self.ssl_context)
        await super()._connect()

    async def disconnect(self, nowait: bool = False, *arguments: Any, **more: Any) -> None:  # noqa: FBT001, FBT002 - redis-py's
        """Close it. With `nowait` it says no good-bye, whose answer a dead server would owe for 30 s."""
        writer = self._writer
        await super().disconnect(nowait, *arguments, **more)
        if nowait and writer is not None:
            writer.transport.abort()


def parsed(url: str) -> dict[str, Any]:
    """Return what redis-py's `parse_url` gives, with this class of connections and never without one."""
    arguments: dict[str, Any] = dict(parse_url(url))
    kind = arguments.get("connection_class", Connection)
    return {**arguments, "connection_class": TlsConnection if kind is SSLConnection else kind}


def _shared(own: RedisSSLContext) -> RedisSSLContext:
    files = (own.ca_certs, own.certfile, own.keyfile)
    key = (*((one, _changed(one)) for one in files), own.password, own.check_hostname, own.cert_reqs)
    if key not in _contexts:
        while len(_contexts) >= MOST_CONTEXTS:
            del _contexts[next(iter(_contexts))]
        own.context = None
        own.get()  # which fails where a file cannot be read
        _contexts[key] = own
    return _contexts[key]


def _changed(file: str | None) -> tuple[int, int] | None:
    """Return what is different when the file is another, as with a renewed certificate."""
    if file is None:
        return None
    try:
        found = Path(file).stat()
    except OSError as error:
        raise RedisConnectionError(f"{file} cannot be read: {error.strerror}") from None
    return found.st_mtime_ns, found.st_ino
