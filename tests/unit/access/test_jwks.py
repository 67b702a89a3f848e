from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from app.access.jwks import EXTRA_SECONDS, KEPT_SECONDS, IssuerKeys
from app.access.key_set import MAX_BYTES
from app.access.tokens import TokenRules, Tokens
from app.core.access.callers import Caller
from tests.unit.access.signing import AUDIENCE, EC, ED, RSA, claims, public_set, signed
from tests.unit.assembly import ManualClock

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


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    one = Issuer()
    application = web.Application()
    application.router.add_get("/.well-known/openid-configuration", one.describe)
    application.router.add_get("/keys", one.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield one
    await runner.cleanup()


async def stall(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def flood(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65_536)


async def trickle(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"{")
    return await stall(request)


async def bomb(_request: web.Request) -> web.StreamResponse:
    return web.Response(body=gzip.compress(b" " * 2_000_000), headers={"Content-Encoding": "gzip"})


async def break_off(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def redirect(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/keys")


async def too_large(_request: web.Request) -> web.StreamResponse:
    return web.Response(body=public_set(ED) + b" " * MAX_BYTES)


async def missing(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPNotFound


async def nonsense(_request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"<html>")


def keys_of(issuer: Issuer, clock: ManualClock | None = None) -> IssuerKeys:
    return IssuerKeys(issuer.url, clock or ManualClock(), budget=60.0, fetch_seconds=60.0)


async def test_the_first_caller_waits_for_the_first_fetch(issuer: Issuer) -> None:
    keys = keys_of(issuer)
    found = await asyncio.gather(*[keys.find("ec") for _ in range(20)])
    assert all(found)
    assert issuer.asked == 1


async def test_a_token_is_verified_with_the_keys_of_a_real_issuer(issuer: Issuer) -> None:
    tokens = Tokens(TokenRules(issuer.url, AUDIENCE), keys_of(issuer), ManualClock())
    assert isinstance(await tokens.verify(signed(claims(iss=issuer.url))), Caller)


async def test_unknown_keys_cause_one_fetch_in_ten_seconds(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = keys_of(issuer, clock)
    assert await keys.find("ec")
    for _ in range(50):
        for number in range(20):
            assert await keys.find(f"unknown-{number}") is None
        clock.advance(EXTRA_SECONDS / 50 - 0.001)
    assert issuer.asked == 1
    issuer.body = public_set(EC, RSA)
    clock.advance(0.1)
    assert await keys.find("rsa")
    assert issuer.asked == 2


async def test_a_key_that_the_issuer_withdrew_counts_no_more(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = keys_of(issuer, clock)
    assert await keys.find("ec")
    issuer.body = public_set(RSA)
    clock.advance(EXTRA_SECONDS)
    assert await keys.find("rsa")
    assert await keys.find("ec") is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (stall, "TimeoutError"),
        (trickle, "TimeoutError"),
        (flood, f"issuer: answers with more than {MAX_BYTES} bytes"),
        (too_large, f"issuer: answers with more than {MAX_BYTES} bytes"),
        (bomb, "keys: is no JSON Web Key Set"),
        (break_off, "Server disconnected"),
        (redirect, "issuer: answers 302"),
        (missing, "issuer: answers 404"),
        (nonsense, "keys: is no JSON Web Key Set"),
    ],
)
async def test_a_bad_answer_leaves_the_last_good_keys_for_a_day(issuer: Issuer, answer: Answer, reason: str) -> None:
    clock = ManualClock()
    keys = keys_of(issuer, clock)
    assert await keys.find("ec")
    issuer.keys = answer
    clock.advance(EXTRA_SECONDS)
    if reason == "TimeoutError":
        keys._fetch_seconds = 0.1
    with capture_logs() as logs:
        assert await keys.find("unknown") is None
    assert [str(log["reason"]).startswith(reason) for log in logs] == [True]
    assert (keys.fetches, keys.failures) == (2, 1)
    assert await keys.find("ec")
    clock.advance(KEPT_SECONDS - EXTRA_SECONDS - 1)
    assert await keys.find("ec")
    clock.advance(1)
    assert await keys.find("ec") is None
    issuer.keys, keys._fetch_seconds = issuer.good, 60.0
    clock.advance(EXTRA_SECONDS)
    assert await keys.find("ec")


@pytest.mark.parametrize(
    "described",
    [
        {"issuer": "https://other.example"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": 7},
    ],
)
async def test_an_issuer_that_describes_another_one_is_not_believed(
    issuer: Issuer, described: dict[str, object]
) -> None:
    issuer.described = described
    keys = keys_of(issuer)
    assert await keys.find("ec") is None
    assert keys.failures == 1


async def test_a_caller_waits_no_longer_than_the_budget_and_the_fetch_goes_on(issuer: Issuer) -> None:
    release = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await release.wait()
        return await issuer.good(request)

    issuer.keys = slow
    keys = IssuerKeys(issuer.url, ManualClock(), budget=0.05, fetch_seconds=60.0)
    assert await keys.find("ec") is None
    impatient = asyncio.ensure_future(keys.find("ec"))
    await asyncio.sleep(0)
    impatient.cancel()
    release.set()
    await asyncio.wait({keys._fetch()})
    assert await keys.find("ec")
    assert issuer.asked == 1


async def test_known_keys_never_wait_for_the_issuer(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = keys_of(issuer, clock)
    assert await keys.find("ec")
    issuer.keys = stall
    clock.advance(EXTRA_SECONDS)
    waiting = asyncio.ensure_future(keys.find("unknown"))
    await asyncio.sleep(0)
    known = asyncio.ensure_future(keys.find("ec"))
    await asyncio.sleep(0)
    assert known.done()
    await keys.close()
    assert await waiting is None


async def test_it_is_fetched_at_once_and_ends_with_its_task(issuer: Issuer) -> None:
    keys = keys_of(issuer)
    running = asyncio.create_task(keys.run())
    await asyncio.sleep(0)  # it begins
    assert keys.fetches == 1
    assert await keys.find("ec")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await keys.close()
    assert issuer.asked == 1
