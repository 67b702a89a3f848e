"""An OIDC issuer: a real HTTP server with discovery and a key set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from tests.unit.access.signing import EC, public_set

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Issuer:
    """A real HTTP server; what it answers with can be changed while it runs."""

    def __init__(self) -> None:
        self.url = ""
        self.asked = 0
        self.keys: Answer = self.good
        self.described: dict[str, object] = {}
        self.body = public_set(EC)

    async def good(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.body)

    async def describe(self, _request: web.Request) -> web.StreamResponse:
        self.asked += 1
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.described})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await self.keys(request)


@asynccontextmanager
async def serving() -> AsyncIterator[Issuer]:
    """An issuer that answers, until the end of the block."""
    one = Issuer()
    application = web.Application()
    application.router.add_get("/.well-known/openid-configuration", one.describe)
    application.router.add_get("/keys", one.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield one
    finally:
        await runner.cleanup()
