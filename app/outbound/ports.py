"""The port of what sends to the outside; its library is loaded when something is sent first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from app.core.webhooks.schedule import Reply

SECONDS: Final = 15.0
"""The longest time that an attempt may take, name look-up and TLS included."""


class Sender(Protocol):
    """Sends a delivery once."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Post the body and return what came of it; it never raises."""

    async def close(self) -> None:
        """Let go of all connections."""


class DeferredSender:
    """Makes a sender when something is sent first: a node whose webhooks nobody uses has no HTTP client in memory."""

    def __init__(self, make: Callable[[], Sender]) -> None:
        """`make` is called once, in another thread, as it may load a library."""
        self._make = make
        self._making: asyncio.Task[Sender] | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """See the port."""
        if self._making is None:
            self._making = asyncio.create_task(asyncio.to_thread(self._make), name="outbound sender")
        sender = await asyncio.shield(self._making)  # who stops waiting stops nobody else
        return await sender.post(url, headers, body)

    async def close(self) -> None:
        """See the port."""
        if self._making is not None:
            await (await self._making).close()
