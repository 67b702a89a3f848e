"""Requests to a node and its replies, as data; and the port that carries them. No HTTP library is seen here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import quote, urlencode

from homing_client._errors import UnexpectedAnswerError

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
PROBLEM: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Request:
    """One call of an operation.

    `query` leaves out what is None; `repeated` are parameters that may come several times. `repeatable`: sent twice, it
    does what it does when it is sent once. `patience`: how long its answer may take, in seconds; None for as long as
    the client waits by default.
    """

    method: str
    template: str
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str | None] = field(default_factory=dict)
    repeated: Sequence[tuple[str, str]] = ()
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    patience: float | None = None

    @property
    def operation(self) -> str:
        """As /openapi.json names it: `GET /v1/commands/{command_id}`."""
        return f"{self.method} {self.template}"

    @property
    def target(self) -> str:
        """Path and query. A parameter can never become another part of the path: ValueError where it would."""
        path = self.template.format(**{name: _segment(name, value) for name, value in self.path.items()})
        query = urlencode([*((name, one) for name, one in self.query.items() if one is not None), *self.repeated])
        return f"{path}?{query}" if query else path

    @property
    def content(self) -> bytes | None:
        """The body as it is sent; ValueError when it is no JSON."""
        return None if self.body is None else json.dumps(self.body, allow_nan=False).encode()


def _segment(name: str, value: str) -> str:
    if value in ("", ".", ".."):
        raise ValueError(f"{name}: {value!a} cannot be part of a path")
    return quote(value, safe=":")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """True if it says that what was asked for is done (RFC 9110); nodes send nobody elsewhere."""
        return 200 <= self.status < 300  # noqa: PLR2004

    @property
    def is_json(self) -> bool:
        """True if it says that it is JSON, or a problem in JSON."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind == JSON or kind.endswith("+json")

    def value(self) -> Any:  # noqa: ANN401 - any JSON value
        """The JSON in the body; UnexpectedAnswerError where there is none."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise UnexpectedAnswerError(f"HTTP {self.status} without JSON: that is no Homing node") from None

    def json(self) -> dict[str, Any]:
        """The object in the body; UnexpectedAnswerError where there is none."""
        body = self.value()
        if not isinstance(body, dict):
            raise UnexpectedAnswerError(f"HTTP {self.status} without a JSON object: that is no Homing node")
        return body


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One server-sent event."""

    event: str
    data: str
    id: str
    retry: int | None = None
    """Milliseconds after which to connect again."""


class AsyncTransport(Protocol):
    """Carries requests to nodes. A connection that fails is an UnreachableError, whatever library it comes from."""

    async def exchange(
        self, url: str, method: str, content: bytes | None, headers: Mapping[str, str], patience: float
    ) -> Reply:
        """Send one request and read its whole answer within `patience` seconds."""
        ...

    def stream(
        self, url: str, headers: Mapping[str, str], patience: float
    ) -> AbstractAsyncContextManager[tuple[Reply, AsyncIterator[ServerEvent]]]:
        """GET server-sent events. Of an answer that is none, the Reply has the content and there are no events.

        `patience`: how many seconds may pass without a byte.
        """
        ...

    async def aclose(self) -> None:
        """Let go of all connections."""


class Transport(Protocol):
    """As AsyncTransport, for callers that block."""

    def exchange(
        self, url: str, method: str, content: bytes | None, headers: Mapping[str, str], patience: float
    ) -> Reply:
        """Send one request and read its whole answer within `patience` seconds."""
        ...

    def stream(
        self, url: str, headers: Mapping[str, str], patience: float
    ) -> AbstractContextManager[tuple[Reply, Iterator[ServerEvent]]]:
        """GET server-sent events. Of an answer that is none, the Reply has the content and there are no events."""
        ...

    def close(self) -> None:
        """Let go of all connections."""


class UpgradeRefusedError(Exception):
    """A node has answered, and does not go on with another protocol."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"HTTP {reply.status}")
        self.reply = reply


class AsyncDuplex(Protocol):
    """A connection on which both sides say something. Once it has ended, calls raise UnreachableError."""

    async def send(self, text: str) -> None:
        """Say something."""

    async def receive(self, seconds: float) -> str | None:
        """Return what the node says next; None when it says nothing for so long."""
        ...


class Duplex(Protocol):
    """As AsyncDuplex, for callers that block. Several threads may use it."""

    def send(self, text: str) -> None:
        """Say something."""

    def receive(self, seconds: float) -> str | None:
        """Return what the node says next; None when it says nothing for so long."""
        ...


@runtime_checkable
class AsyncDuplexTransport(Protocol):
    """An AsyncTransport that can do so as well. Others do without."""

    def connect(
        self, url: str, headers: Mapping[str, str], patience: float
    ) -> AbstractAsyncContextManager[AsyncDuplex]:
        """Open a connection; UpgradeRefusedError."""
        ...


@runtime_checkable
class DuplexTransport(Protocol):
    """As AsyncDuplexTransport, for callers that block."""

    def connect(self, url: str, headers: Mapping[str, str], patience: float) -> AbstractContextManager[Duplex]:
        """Open a connection; UpgradeRefusedError."""
        ...
