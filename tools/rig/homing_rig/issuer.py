"""An OIDC issuer: an HTTP server with discovery and a key set."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Issuer:
    """Its answers can be changed while it runs. `body` is a JSON Web Key Set."""

    def __init__(self, body: bytes) -> None:
        self.url = ""
        self.asked = 0
        """How often it was asked where its keys are."""
        self.keys: Answer = self.good
        self.described: dict[str, object] = {}
        self.body = body

    async def good(self, _request: web.Request) -> web.StreamResponse:
        """Answer with the keys."""
        return web.Response(body=self.body)

    async def describe(self, _request: web.Request) -> web.StreamResponse:
        """Answer with the discovery document."""
        self.asked += 1
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.described})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer as it is to answer for its keys."""
        return await self.keys(request)


@asynccontextmanager
async def serving(body: bytes) -> AsyncIterator[Issuer]:
    """An issuer with this key set that answers until the end of the block."""
    one = Issuer(body)
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


def part(value: object) -> str:
    """One part of a token, encoded."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
