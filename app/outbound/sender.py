"""One attempt to deliver, over HTTP. The only place that knows aiohttp's client for webhooks."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import structlog
from aiohttp import (
    AddrInfoType,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    StreamReader,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult

from app.core.payload import MAX_BYTES
from app.core.webhooks.destinations import Network, refusal
from app.core.webhooks.schedule import Reply
from app.outbound.ports import SECONDS

MOST_REPLY: Final = 65_536
"""The bytes of a reply that are read, so that the receiver is not cut off while it writes."""
THREADS: Final = 16
"""The number of names that are looked up at the same time."""
_MOST_REASON: Final = 200


class RefusedAddressError(OSError):
    """The address is not public. What it says is for whoever named the host, who need not know its addresses."""


_NOT_ALLOWED: Final = "the name leads to an address that is not allowed"
_log = structlog.get_logger(__name__)


class SendResult(NamedTuple):
    """The end of an attempt to send, and the words of the receiver."""

    reply: Reply
    said: bytes = b""
    timed_out: bool = False


class HttpSender:
    """Follows no redirection, knows no proxy, keeps no cookie, and connects to public addresses and `allowed` only."""

    def __init__(self, *, allowed: Sequence[Network], user_agent: str, seconds: float = SECONDS) -> None:
        """`seconds` is how long an attempt may take."""
        self._allowed = allowed
        self._seconds = seconds
        self._user_agent = user_agent
        self._session: ClientSession | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """See the port."""
        return (await self._exchange(url, headers, body, _beginning)).reply

    async def ask(self, url: str, headers: Mapping[str, str], body: bytes) -> SendResult:
        """Post the body and return what came of it and what the receiver says; it never raises."""
        return await self._exchange(url, {"accept-encoding": "identity", **headers}, body, _whole)

    async def _exchange(
        self, url: str, headers: Mapping[str, str], body: bytes, read: Callable[[StreamReader], Awaitable[bytes]]
    ) -> SendResult:
        try:
            async with self._open().post(
                url, data=body, headers={"content-type": "application/json", **headers}, allow_redirects=False
            ) as response:
                status, retry_after = response.status, response.headers.get("retry-after")
                said = await read(response.content)
        except TimeoutError:
            return SendResult(Reply(None, f"no reply within {self._seconds:g} s"), timed_out=True)
        except (ClientError, OSError, ValueError) as error:
            return SendResult(Reply(None, _reason(error)[:_MOST_REASON]))
        reason = "" if 200 <= status < 300 else f"the receiver answered {status}"  # noqa: PLR2004 - RFC 9110, 15.3
        return SendResult(Reply(status, reason, retry_after), said)

    async def close(self) -> None:
        """See the port."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> ClientSession:
        if self._session is None:
            connector = TCPConnector(
                resolver=_PublicResolver(self._allowed),
                socket_factory=self._socket,
                limit=0,  # who calls bounds it: lanes, and handlers of replies
                use_dns_cache=False,  # so that what was judged is what is connected to
                force_close=True,
            )
            self._session = ClientSession(
                connector=connector,
                timeout=ClientTimeout(total=self._seconds),
                headers={"user-agent": self._user_agent},
                cookie_jar=DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            )
        return self._session

    def _socket(self, address: AddrInfoType) -> socket.socket:
        """The last gate before `connect`: literals come here without a look-up."""
        family, kind, protocol, _, target = address
        reason = refusal(str(target[0]), self._allowed)
        if reason is not None:
            raise RefusedAddressError(reason)
        return socket.socket(family, kind, protocol)


async def _beginning(content: StreamReader) -> bytes:
    """The first bytes of a body; that it stalls or breaks off changes nothing about the status before it."""
    with suppress(TimeoutError, ClientError, OSError):
        return await content.read(MOST_REPLY)
    return b""


async def _whole(content: StreamReader) -> bytes:
    said = bytearray()
    while len(said) <= MAX_BYTES and (more := await content.read(MOST_REPLY)):
        said += more
    return bytes(said)  # too much is still too much when a part of it is read


def _reason(error: BaseException) -> str:
    """The cause behind an error of aiohttp, which says that it cannot connect and not why."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RefusedAddressError):
            return str(cause)
        cause = cause.__cause__
    if isinstance(error, ClientConnectorError) and not isinstance(error, ClientConnectorDNSError) and error.errno:
        return f"cannot connect to {error.host[:100]}:{error.port}: {os.strerror(error.errno)}"  # without its address
    return str(error) or type(error).__name__


class _PublicResolver(AbstractResolver):
    """Gives the addresses of a name when all of them may be connected to: one that may not is an attempt.

    Names are looked up in threads of its own, each name in one of them at a time: a name server that does not answer
    keeps nobody waiting but those who ask for its names.
    """

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="webhook-names")
        self._asked: dict[tuple[str, int, int], asyncio.Future[list[ResolveResult]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        key = (host, port, family)
        asked = self._asked.get(key)
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = self._asked[key] = loop.run_in_executor(self._threads, _look_up, *key)
            asked.add_done_callback(partial(self._answered, key))
        found = await asyncio.shield(asked)  # who stops waiting stops nobody else who asks for this name
        for one in found:
            reason = refusal(one["host"], self._allowed)
            if reason is not None:
                _log.info("webhook_address_refused", host=host[:100], reason=reason)
                raise RefusedAddressError(f"{host[:100]}: {_NOT_ALLOWED}")
        return found

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answered(self, key: tuple[str, int, int], asked: asyncio.Future[list[ResolveResult]]) -> None:
        del self._asked[key]
        if not asked.cancelled():
            asked.exception()  # nobody may be waiting for it any more


def _look_up(host: str, port: int, family: int) -> list[ResolveResult]:
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=str(target[0]), port=port, family=found, proto=protocol, flags=flags)
        for found, _, protocol, _, target in socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    ]
