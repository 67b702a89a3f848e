"""HTTP servers that receive webhooks, or must never be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.Response]]


async def fine(_request: web.Request) -> web.Response:
    """Answer 204."""
    return web.Response(status=204)


@dataclass
class Receiver:
    """A server that keeps header and body of what comes in."""

    port: int = 0
    answer: Answer = fine
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """The address to deliver to."""
        return f"http://127.0.0.1:{self.port}/hook"

    async def wait(self, count: int) -> None:
        """Return when so many requests have come in."""
        while len(self.got) < count:
            self.heard.clear()
            await self.heard.wait()


@asynccontextmanager
async def receiving(answer: Answer = fine, host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    """A server that answers so until the end of the block."""
    receiver = Receiver(answer=answer)

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        receiver.got.append(({name.lower(): value for name, value in request.headers.items()}, body))
        receiver.heard.set()
        return await receiver.answer(request)

    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", take)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    server: Any = runner.server

    def counted() -> asyncio.Protocol:
        receiver.connections += 1
        protocol: asyncio.Protocol = server()
        return protocol

    listening = await asyncio.get_running_loop().create_server(counted, host, 0)
    receiver.port = listening.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        listening.close()
        await runner.cleanup()
