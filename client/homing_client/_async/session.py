"""Sends requests to the nodes of a cluster, again where that makes sense."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from homing_client import _system
from homing_client._answers import body_of, problem_of
from homing_client._errors import UnreachableError
from homing_client._retry import Attempts, Budget, Retry
from homing_client._wire import (
    EVENTS,
    JSON,
    AsyncDuplex,
    AsyncDuplexTransport,
    AsyncTransport,
    Reply,
    Request,
    ServerEvent,
    UpgradeRefusedError,
)

STREAM_PATIENCE: Final = 45.0
"""Seconds without a byte after which a stream is taken for dead: nodes write every 15."""
MOST_PAUSE: Final = 60.0
"""Seconds that a node may ask for between two connections of a stream."""
NOTHING_MORE: Final = 204
"""The HTTP status of a stream that is over for good: nothing more will come, so the client asks no more."""


class AsyncSession:
    """One cluster: its nodes, the key to show them, and the budget of retries.

    `patience`: seconds that an answer may take where the request does not say.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        urls: Sequence[str],
        *,
        key: str | None,
        agent: str,
        retry: Retry,
        patience: float,
        chance: Callable[[], float] = _system.chance,
    ) -> None:
        self._transport, self._urls, self._retry, self._patience = transport, tuple(urls), retry, patience
        self._chance = chance
        self._budget = Budget(retry.share, retry.burst)
        self._headers = {"Accept": JSON, "User-Agent": agent}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._at = 0
        self.consumer: Final = _system.new_consumer_name()
        """The name under which it takes from queues where the caller gives none: nodes tell programs apart by it."""

    @property
    def url(self) -> str:
        """The node that is asked at present."""
        return self._urls[self._at % len(self._urls)]

    def _leave(self, at: int) -> None:
        """Ask another node from now on, if there is one; of many who were sent away by one node, the first says so."""
        self._at = max(self._at, at + 1)

    async def every(self, path: str, member: str, **query: str | None) -> list[dict[str, Any]]:
        """All of a list, page by page; nodes of 0.2.0 give some lists as one."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = body_of(await self.exchange(Request("GET", path, query={**query, "cursor": cursor})))
            found += page.get(member) or ()
            cursor = page.get("cursor")
            if cursor is None:
                return found

    def headers_of(self, request: Request) -> dict[str, str]:
        """All headers of a request."""
        headers = self._headers | dict(request.headers)
        if request.body is not None:
            headers["Content-Type"] = JSON
        return headers

    async def exchange(self, request: Request) -> Reply:
        """Try a request until a node answers it with a status below 400, or no attempt is left; return the last answer.

        That may be an error. UnreachableError when the last attempt got no answer, whatever those before it got.
        """
        attempts = self._attempts(request)
        while True:
            at = self._at
            ended = await self._attempt(request)
            if isinstance(ended, Reply) and ended.status < 400:  # noqa: PLR2004 - RFC 9110
                return ended
            wait = attempts.again(ended)
            if wait is None:
                break
            self._leave(at)
            await _system.async_sleep(wait)
        if isinstance(ended, UnreachableError):
            raise ended
        return ended

    async def once(self, request: Request) -> Reply:
        """The answer to a request that is not tried again; UnreachableError when there was none."""
        ended = await self._attempt(request)
        if isinstance(ended, UnreachableError):
            raise ended
        return ended

    async def _attempt(self, request: Request) -> Reply | UnreachableError:
        patience = self._patience if request.patience is None else request.patience
        try:
            return await self._transport.exchange(
                self.url + request.target, request.method, request.content, self.headers_of(request), patience
            )
        except UnreachableError as error:
            return error

    async def stream(self, request: Request, after: str | None) -> AsyncGenerator[ServerEvent, None]:
        """The events of a stream, which goes on where it broke off, on whichever node answers.

        `after` is the id of the last event that is known. It ends when the node says that nothing more can come, and
        when whoever reads it stops. Raises what the last attempt ended with; each event begins a new count of attempts.
        """
        attempts = self._attempts(request)
        while True:
            at, pause, news = self._at, 0.0, False
            known = {} if after is None else {"Last-Event-ID": after}
            headers = self.headers_of(request) | {"Accept": EVENTS} | known
            try:
                async with self._transport.stream(self.url + request.target, headers, STREAM_PATIENCE) as (
                    ended,
                    events,
                ):
                    if ended.status == NOTHING_MORE:
                        return
                    async for one in events:
                        news = True
                        after = one.id or after
                        pause = pause if one.retry is None else min(one.retry, MOST_PAUSE * 1000) / 1000
                        yield one
                failure: Reply | UnreachableError = ended
                if ended.status < 400:  # noqa: PLR2004 - RFC 9110
                    failure = UnreachableError(f"{self.url} ended the stream")
            except UnreachableError as error:
                failure = error
            if news:
                # It works: what broke is one connection, or a node that stops and says when to come back.
                attempts = self._attempts(request)
                wait: float | None = self._chance() * self._retry.first.total_seconds()
            else:
                wait = attempts.again(failure)
            if wait is None:
                raise failure if isinstance(failure, UnreachableError) else problem_of(failure)
            self._leave(at)
            await _system.async_sleep(max(wait, pause))

    @asynccontextmanager
    async def connect(self, path: str) -> AsyncIterator[AsyncDuplex]:
        """A connection on which both sides say something, tried once; UnreachableError, UpgradeRefusedError.

        It is refused as well where what carries the requests knows none.
        """
        if not isinstance(self._transport, AsyncDuplexTransport):
            raise UpgradeRefusedError(Reply(426, {}, b""))
        at, request = self._at, Request("GET", path)
        try:
            async with self._transport.connect(
                self.url + request.target, self.headers_of(request), self._patience
            ) as duplex:
                yield duplex
        except UnreachableError:
            self._leave(at)
            raise

    def _attempts(self, request: Request) -> Attempts:
        others = len(self._urls) - 1
        return Attempts(request, self._retry, self._budget, self._chance, others=others)

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self._transport.aclose()
