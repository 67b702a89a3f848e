"""WebSockets by httpx2, for `_http`, which imports this when somebody opens one. Nothing of the library leaves it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import httpx2
from httpx2 import websockets

from homing_client._errors import UnreachableError
from homing_client._wire import Reply, UpgradeRefusedError

PING_SECONDS: Final = 20.0
MAX_MESSAGE: Final = 4 * 1024 * 1024
"""Bytes of one message: more than any that a node sends."""
_LOST: Final = (websockets.HTTPXWSException, httpx2.HTTPError, OSError)


class AsyncHttpDuplex:
    """A WebSocket that is open. An AsyncDuplex."""

    def __init__(self, url: str, session: websockets.AsyncWebSocketSession) -> None:
        self._url = url
        self._session = session

    async def send(self, text: str) -> None:
        """Say something."""
        try:
            await self._session.send_text(text)
        except Exception as error:  # the library lets errors of what is below it through
            raise _ended(self._url, error) from error

    async def receive(self, seconds: float) -> str | None:
        """Return what the node says next; None when it says nothing for so long."""
        try:
            return await self._session.receive_text(seconds)
        except TimeoutError:
            return None
        except _LOST as error:
            raise _ended(self._url, error) from error


class HttpDuplex:
    """As AsyncHttpDuplex, for threads that block. A Duplex."""

    def __init__(self, url: str, session: websockets.WebSocketSession) -> None:
        self._url = url
        self._session = session

    def send(self, text: str) -> None:
        """Say something."""
        try:
            self._session.send_text(text)
        except Exception as error:  # the library lets errors of what is below it through
            raise _ended(self._url, error) from error

    def receive(self, seconds: float) -> str | None:
        """Return what the node says next; None when it says nothing for so long."""
        try:
            return self._session.receive_text(seconds)
        except TimeoutError:
            return None
        except _LOST as error:
            raise _ended(self._url, error) from error


@asynccontextmanager
async def async_open(
    client: httpx2.AsyncClient, url: str, headers: Mapping[str, str], patience: float
) -> AsyncIterator[AsyncHttpDuplex]:
    """Open one; UpgradeRefusedError, and what the library raises when nobody answers."""
    failure: BaseException | None = None
    try:
        async with client.websocket(_address(url), **_options(headers, patience)) as session:
            try:
                yield AsyncHttpDuplex(url, session)
            except BaseException as error:  # noqa: BLE001 - the library would put it into a group
                failure = error
    except websockets.WebSocketUpgradeError as error:
        raise _refused(error) from error
    if failure is not None:
        raise failure


@contextmanager
def blocking_open(client: httpx2.Client, url: str, headers: Mapping[str, str], patience: float) -> Iterator[HttpDuplex]:
    """As `async_open`, for threads that block."""
    try:
        with client.websocket(_address(url), **_options(headers, patience)) as session:
            yield HttpDuplex(url, session)
    except websockets.WebSocketUpgradeError as error:
        raise _refused(error) from error


def _address(url: str) -> str:
    return f"ws{url.removeprefix('http')}"


def _options(headers: Mapping[str, str], patience: float) -> dict[str, Any]:
    return {
        "headers": dict(headers),
        "timeout": httpx2.Timeout(patience, connect=min(patience, 5.0)),  # until it is open: then pings tell
        "max_message_size_bytes": MAX_MESSAGE,
        "keepalive_ping_interval_seconds": PING_SECONDS,
        "keepalive_ping_timeout_seconds": PING_SECONDS,
    }


def _refused(error: websockets.WebSocketUpgradeError) -> UpgradeRefusedError:
    return UpgradeRefusedError(Reply(error.response.status_code, {}, b""))


def _ended(url: str, error: Exception) -> UnreachableError:
    said = f": {error.code} {error.reason}" if isinstance(error, websockets.WebSocketDisconnect) else ""
    base = "/".join(url.split("/", 3)[:3])
    return UnreachableError(f"{base} has ended the connection{said}", sent=True)
