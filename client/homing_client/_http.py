"""Knows the HTTP library, httpx2, as `_duplex` does. Neither its values nor its errors leave it."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx2

from homing_client import _system
from homing_client._errors import UnreachableError
from homing_client._wire import EVENTS, AsyncDuplex, Duplex, Reply, ServerEvent

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_CONNECTING: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_MAX_EVENT: Final = 16 * 1024 * 1024
"""Bytes of one event: more than any that a node sends."""


def _options(*, secure: bool, connections: int) -> dict[str, Any]:
    # Without https no certificates are read, which takes longer than a request. Nothing is trusted then, so an https
    # URL that came here by mistake fails. Nor is a proxy of the environment asked, which would not know this machine.
    verify: ssl.SSLContext | bool = True if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
    return {"verify": verify, "limits": limits, "timeout": None, "trust_env": secure}


def _timeout(patience: float) -> httpx2.Timeout:
    return httpx2.Timeout(patience, connect=min(patience, 5.0))


def _reply(response: httpx2.Response, content: bytes) -> Reply:
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, content)


def _is_stream(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.is_success and kind == EVENTS


def _event(one: httpx2.ServerSentEvent) -> ServerEvent:
    return ServerEvent(one.event, one.data, one.id, one.retry)


def _unreachable(url: str, error: Exception) -> UnreachableError:
    base = "/".join(url.split("/", 3)[:3])
    if isinstance(error, (httpx2.TimeoutException, TimeoutError)):
        return UnreachableError(f"{base} did not answer in time", sent=not isinstance(error, _CONNECTING))
    reason = _cause(error)
    return UnreachableError(f"{base} cannot be reached: {reason}", sent=not isinstance(error, _CONNECTING))


def _cause(error: BaseException) -> str:
    """The words of the operating system, as far as they can be found behind what the libraries made of them."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and not isinstance(at, ssl.SSLError) and at.errno is not None:
            return os.strerror(at.errno) if at.errno > 0 else str(at.strerror)  # below 0: of getaddrinfo
        at = at.__cause__ or at.__context__
    return str(error) or type(error).__name__


class AsyncHttp:
    """Carries requests for tasks of one event loop at a time, over connections that are kept. An AsyncTransport."""

    def __init__(self, *, secure: bool, connections: int = 100) -> None:
        self._options = _options(secure=secure, connections=connections)
        self._client = httpx2.AsyncClient(**self._options)
        self._loop: AbstractEventLoop | None = None

    def _here(self) -> httpx2.AsyncClient:
        """The library's client, on this event loop. It cannot even close the connections of a loop that has ended."""
        before, self._loop = self._loop, _system.running_loop()
        if before is not None and before.is_closed() and not self._client.is_closed:
            self._client = httpx2.AsyncClient(**self._options)
        return self._client

    async def exchange(
        self, url: str, method: str, content: bytes | None, headers: Mapping[str, str], patience: float
    ) -> Reply:
        """Send one request and read its whole answer, whose body may take as long again as its beginning."""
        asked = self._here().stream(method, url, content=content, headers=dict(headers), timeout=_timeout(patience))
        try:
            async with _system.async_within(2 * patience), asked as response, _system.async_within(patience):
                return _reply(response, await response.aread())
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            raise _unreachable(url, error) from error

    @asynccontextmanager
    async def stream(
        self, url: str, headers: Mapping[str, str], patience: float
    ) -> AsyncIterator[tuple[Reply, AsyncIterator[ServerEvent]]]:
        """GET server-sent events."""
        try:
            async with self._here().stream("GET", url, headers=dict(headers), timeout=_timeout(patience)) as response:
                content = b"" if _is_stream(response) else await response.aread()
                yield _reply(response, content), self._events(response)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _unreachable(url, error) from error

    async def _events(self, response: httpx2.Response) -> AsyncIterator[ServerEvent]:
        if _is_stream(response):
            async for one in httpx2.EventSource(response, _MAX_EVENT):
                yield _event(one)

    @asynccontextmanager
    async def connect(self, url: str, headers: Mapping[str, str], patience: float) -> AsyncIterator[AsyncDuplex]:
        """Open a WebSocket."""
        from homing_client._duplex import async_open  # noqa: PLC0415 - most programs open none

        try:
            async with async_open(self._here(), url, headers, patience) as duplex:
                yield duplex
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _unreachable(url, error) from error

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self._here().aclose()


class Http:
    """As AsyncHttp, for threads that block. A Transport."""

    def __init__(self, *, secure: bool, connections: int = 100) -> None:
        self._client = httpx2.Client(**_options(secure=secure, connections=connections))

    def exchange(
        self, url: str, method: str, content: bytes | None, headers: Mapping[str, str], patience: float
    ) -> Reply:
        """Send one request and read its whole answer, whose body may take as long again as its beginning."""
        asked = self._client.stream(method, url, content=content, headers=dict(headers), timeout=_timeout(patience))
        try:
            with asked as response:
                return _reply(response, b"".join(_system.within(patience, response.iter_bytes())))
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            raise _unreachable(url, error) from error

    @contextmanager
    def stream(
        self, url: str, headers: Mapping[str, str], patience: float
    ) -> Iterator[tuple[Reply, Iterator[ServerEvent]]]:
        """GET server-sent events."""
        try:
            with self._client.stream("GET", url, headers=dict(headers), timeout=_timeout(patience)) as response:
                content = b"" if _is_stream(response) else response.read()
                yield _reply(response, content), self._events(response)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _unreachable(url, error) from error

    def _events(self, response: httpx2.Response) -> Iterator[ServerEvent]:
        if _is_stream(response):
            for one in httpx2.EventSource(response, _MAX_EVENT):
                yield _event(one)

    @contextmanager
    def connect(self, url: str, headers: Mapping[str, str], patience: float) -> Iterator[Duplex]:
        """Open a WebSocket."""
        from homing_client._duplex import blocking_open  # noqa: PLC0415 - most programs open none

        try:
            with blocking_open(self._client, url, headers, patience) as duplex:
                yield duplex
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _unreachable(url, error) from error

    def close(self) -> None:
        """Let go of all connections."""
        self._client.close()
