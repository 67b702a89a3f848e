"""An OIDC issuer: an HTTP server with discovery, a key set, and logins of somebody who needs no password."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

CODE: Final = "a-code-of-one-login"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Issuer:
    """Its answers can be changed while it runs. `body` is a JSON Web Key Set."""

    def __init__(self, body: bytes) -> None:
        self.url = ""
        self.asked = 0
        """The number of times that it was asked where its keys are."""
        self.keys: Answer = self.good
        self.described: dict[str, object] = {}
        self.body = body
        self.tokens: Callable[[], str] = str
        """Makes the access token that a login gives."""
        self.exchange: Answer = self.give
        self.asked_for: dict[str, str] = {}
        """The query with which the browser came to log in the last time."""
        self.forms: list[dict[str, str]] = []
        """The forms with which tokens were asked for."""
        self.clients: list[str | None] = []
        """The `Authorization` beside it."""

    async def good(self, _request: web.Request) -> web.StreamResponse:
        """Answer with the keys."""
        return web.Response(body=self.body)

    async def describe(self, _request: web.Request) -> web.StreamResponse:
        """Answer with the discovery document."""
        self.asked += 1
        known = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
        }
        return web.json_response({**known, **self.described})

    async def authorize(self, request: web.Request) -> web.StreamResponse:
        """Log somebody in and send the browser back."""
        self.asked_for = dict(request.query)
        back = {"code": CODE, "state": self.asked_for["state"], "iss": self.url}
        raise web.HTTPFound(f"{self.asked_for['redirect_uri']}?{urlencode(back)}")

    async def give(self, request: web.Request) -> web.StreamResponse:
        """Give the token for the code to whoever has begun the login (RFC 7636, section 4.6)."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        self.clients.append(request.headers.get("Authorization"))
        verifier = form.get("code_verifier", "").encode()
        if form.get("code") != CODE or part(sha256(verifier).digest()) != self.asked_for.get("code_challenge"):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": self.tokens(), "token_type": "Bearer", "expires_in": 600})

    async def token(self, request: web.Request) -> web.StreamResponse:
        """Answer as it is to answer for a token."""
        return await self.exchange(request)

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
    application.router.add_get("/authorize", one.authorize)
    application.router.add_post("/token", one.token)
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
