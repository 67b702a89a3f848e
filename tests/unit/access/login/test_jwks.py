from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from app.access.login.jwks import EXTRA_SECONDS, KEPT_SECONDS, IssuerKeys
from app.access.login.key_set import MAX_BYTES, SigningKey
from app.access.login.tokens import TokenRules, Tokens
from app.core.access.callers import Caller, TokenFault
from homing_rig.issuer import Answer, Issuer, serving
from tests.unit.access.signing import AUDIENCE, EC, ED, RSA, claims, public_set, signed
from tests.unit.assembly import ManualClock


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with serving(public_set(EC)) as one:
        yield one


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
    return IssuerKeys(issuer.url, clock or ManualClock(), Counter(), fetch_seconds=60.0)


async def found(keys: IssuerKeys, kid: str) -> SigningKey | None:
    """Return what is found of a key once the fetch has ended that it began, if any."""
    keys.find(kid)
    if keys._fetching is not None:
        await asyncio.wait({keys._fetching})
    return keys.find(kid)


async def test_many_who_ask_at_first_cause_one_fetch_and_wait_for_nothing(issuer: Issuer) -> None:
    keys = keys_of(issuer)
    assert [keys.find("ec") for _ in range(20)] == [None] * 20
    assert len(keys) == 0
    assert await found(keys, "ec")
    assert len(keys) == 1
    assert issuer.asked == 1


async def test_a_token_is_verified_with_the_keys_of_a_real_issuer(issuer: Issuer) -> None:
    keys = keys_of(issuer)
    tokens = Tokens(TokenRules(issuer.url, AUDIENCE), keys, ManualClock())
    text = signed(claims(iss=issuer.url))
    assert tokens.verify(text) is TokenFault.NO_KEYS
    assert await found(keys, "ec")
    assert isinstance(tokens.verify(text), Caller)


async def test_unknown_keys_cause_one_fetch_in_ten_seconds(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = keys_of(issuer, clock)
    assert await found(keys, "ec")
    for _ in range(50):
        for number in range(20):
            assert await found(keys, f"unknown-{number}") is None
        clock.advance(EXTRA_SECONDS / 50 - 0.001)
    assert issuer.asked == 1
    issuer.body = public_set(EC, RSA)
    clock.advance(0.1)
    assert await found(keys, "rsa")
    assert issuer.asked == 2


async def test_a_key_that_the_issuer_withdrew_counts_no_more(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = keys_of(issuer, clock)
    assert await found(keys, "ec")
    issuer.body = public_set(RSA)
    clock.advance(EXTRA_SECONDS)
    assert await found(keys, "rsa")
    assert await found(keys, "ec") is None


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
    assert await found(keys, "ec")
    issuer.keys = answer
    clock.advance(EXTRA_SECONDS)
    if reason == "TimeoutError":
        keys._fetch_seconds = 0.1
    with capture_logs() as logs:
        assert await found(keys, "unknown") is None
    assert [str(log["reason"]).startswith(reason) for log in logs] == [True]
    assert (keys._counters["oidc.fetched"], keys._counters["oidc.failed"]) == (1, 1)
    assert await found(keys, "ec")
    clock.advance(KEPT_SECONDS - EXTRA_SECONDS - 1)
    assert await found(keys, "ec")
    clock.advance(1)
    assert await found(keys, "ec") is None
    issuer.keys, keys._fetch_seconds = issuer.good, 60.0
    clock.advance(EXTRA_SECONDS)
    assert await found(keys, "ec")


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
    assert await found(keys, "ec") is None
    assert keys._counters["oidc.failed"] == 1


async def test_known_keys_count_while_the_issuer_is_asked(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = keys_of(issuer, clock)
    assert await found(keys, "ec")
    issuer.keys = stall
    clock.advance(EXTRA_SECONDS)
    assert keys.find("unknown") is None
    assert keys.find("ec")
    await keys.close()
    assert keys.find("ec")


async def test_it_is_fetched_at_once_and_ends_with_its_task(issuer: Issuer) -> None:
    keys = keys_of(issuer)
    running = asyncio.create_task(keys.run())
    await asyncio.sleep(0)  # it begins
    assert await found(keys, "ec")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await keys.close()
    assert issuer.asked == 1
