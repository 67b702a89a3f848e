# Made by scripts/unasync.py from _async/session.py. Do not edit.
"""Sends requests to the nodes of a cluster, again where that makes sense."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from homing_client import _system
from homing_client._errors import UnreachableError
from homing_client._retry import Attempts, Budget, Retry
from homing_client._wire import JSON, Reply, Request, Transport


class Session:
    """One cluster: its nodes, the key to show them, and the budget of retries.

    `patience`: seconds that an answer may take where the request does not say.
    """

    def __init__(
        self,
        transport: Transport,
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

    @property
    def url(self) -> str:
        """The node that is asked at present."""
        return self._urls[self._at % len(self._urls)]

    def next_node(self) -> None:
        """Ask another node from now on, if there is one."""
        self._at += 1

    def headers_of(self, request: Request) -> dict[str, str]:
        """All headers of a request."""
        headers = self._headers | dict(request.headers)
        if request.body is not None:
            headers["Content-Type"] = JSON
        return headers

    def exchange(self, request: Request) -> Reply:
        """The last answer to a request; UnreachableError when there was none."""
        attempts = Attempts(request, self._retry, self._budget, self._chance)
        while True:
            ended = self._attempt(request)
            if isinstance(ended, Reply) and ended.status < 400:  # noqa: PLR2004 - RFC 9110
                return ended
            wait = attempts.again(ended)
            if wait is None:
                break
            self.next_node()
            _system.sleep(wait)
        if isinstance(ended, UnreachableError):
            raise ended
        return ended

    def once(self, request: Request) -> Reply:
        """The answer to a request that is not tried again; UnreachableError when there was none."""
        ended = self._attempt(request)
        if isinstance(ended, UnreachableError):
            raise ended
        return ended

    def _attempt(self, request: Request) -> Reply | UnreachableError:
        patience = self._patience if request.patience is None else request.patience
        try:
            return self._transport.exchange(
                self.url + request.target, request.method, request.content, self.headers_of(request), patience
            )
        except UnreachableError as error:
            return error

    def close(self) -> None:
        """Let go of all connections."""
        self._transport.close()
