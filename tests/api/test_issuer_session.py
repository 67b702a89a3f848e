"""Logins to the console at a real OIDC issuer: what the browser is sent with, what it brings back, and what it gets."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote_plus

import httpx
import pytest
from aiohttp import web

from app.access.login.issuer_logins import MOST_EXCHANGES
from app.core.access.changes import Put
from app.core.access.model import Binding
from homing_rig.issuer import CODE, Issuer, serving
from tests.api.rig import until
from tests.api.test_access import Site, guarded
from tests.api.test_oidc import GROUP, seconds_now
from tests.unit.access.signing import AUDIENCE, EC, ED, claims, public_set, signed

CONSOLE: Final = "http://127.0.0.1/console/"
BEGIN: Final = "/console/session/oidc"
CALLBACK: Final = f"{BEGIN}/callback"
OURS: Final = {"Homing-Request": "console"}


@dataclass
class Place:
    """A node whose console is a client of an issuer, and a browser."""

    site: Site
    issuer: Issuer
    cookies: dict[str, str]

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask as a browser does, which keeps what it is given."""
        shown = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        answer = await self.site.rig.http.get(path, headers={**shown, **headers})
        for one in answer.headers.get_list("set-cookie"):
            for name, morsel in SimpleCookie(one).items():
                self.cookies[name] = morsel.value
                if morsel["max-age"] == "0":
                    del self.cookies[name]
        return answer

    async def begin(self) -> dict[str, str]:
        """Go to the issuer; return what the browser comes with."""
        answer = await self.get(BEGIN)
        assert answer.status_code == 303
        url = httpx.URL(answer.headers["location"])
        assert str(url).startswith(f"{self.issuer.url}/authorize?")
        self.issuer.asked_for = dict(url.params)
        return self.issuer.asked_for

    async def come_back(self, **query: str) -> str:
        """Return where the node sends the browser then."""
        answer = await self.get(f"{CALLBACK}?{httpx.QueryParams(query)}")
        assert answer.status_code == 303
        assert answer.headers["cache-control"] == "no-store"
        return str(answer.headers["location"])

    async def logged_in(self) -> dict[str, Any] | None:
        answer = await self.get("/v1/me", **OURS)
        return answer.json() if answer.status_code == 200 else None

    def counted(self, result: str) -> int:
        return self.site.rig.counters[f"login.issuer_{result}"]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with serving(public_set(EC)) as issuer:
        now = seconds_now()
        issuer.tokens = lambda: signed(claims(iss=issuer.url, iat=now - 60, exp=now + 600, groups=[GROUP]), EC, "ES256")
        oidc = {"issuer": issuer.url, "audience": AUDIENCE, "client_id": "console", "console_url": CONSOLE}
        async with guarded(tmp_path, oidc=oidc) as site:
            await site.change(Put(Binding(id="b", subject=f"group:{GROUP}", role="operator", tenant_id="air")))
            place = Place(site, issuer, {})
            authority: Any = site.rig.application.ports.access
            await until(lambda: len(authority._tokens._keys) > 0)
            yield place


async def test_who_is_logged_in_by_the_issuer_has_a_session(place: Place) -> None:
    assert (await place.get("/console/session")).json() == {"issuer": "127.0.0.1"}
    asked = await place.begin()
    assert asked["redirect_uri"] == f"{CONSOLE}session/oidc/callback"
    assert await place.logged_in() is None, "what is begun is no session"
    assert await place.come_back(code=CODE, state=asked["state"]) == CONSOLE
    me = await place.logged_in()
    assert me is not None
    assert (me["principal"], me["session"], me["roles"]) == (f"oidc:{place.issuer.url}#ada", True, ["operator"])
    assert (await place.get("/v1/me")).status_code == 401, "pages of strangers cannot use it"
    assert len(place.cookies) == 1, "what was begun is over"
    assert place.counted("accepted") == 1
    assert await place.come_back(code=CODE, state=asked["state"]) == f"{CONSOLE}?login=stale", "each login is one"
    headers = {**OURS, "Cookie": "; ".join(f"{name}={value}" for name, value in place.cookies.items())}
    ended = await place.site.rig.http.delete("/console/session", headers=headers)
    assert ended.status_code == 204
    assert "Max-Age=0" in ended.headers["set-cookie"]


async def test_cookies_are_out_of_reach_of_scripts_and_of_other_hosts(place: Place) -> None:
    begun = (await place.get(BEGIN)).headers["set-cookie"]
    assert begun.startswith("login-homing-")
    assert "Path=/; HttpOnly; Max-Age=600; SameSite=Lax" in begun
    asked = await place.begin()
    answer = await place.get(f"{CALLBACK}?code={CODE}&state={asked['state']}")
    over, session = answer.headers.get_list("set-cookie")
    assert "Max-Age=0" in over
    assert session.endswith("; Path=/; HttpOnly; SameSite=Strict")


async def test_with_tls_browsers_give_them_to_this_host_alone(tmp_path: Path) -> None:
    async with serving(public_set(EC)) as issuer:
        console = "https://homing.example/console/"
        oidc = {"issuer": issuer.url, "audience": AUDIENCE, "client_id": "console", "console_url": console}
        async with guarded(tmp_path, oidc=oidc) as site:
            authority: Any = site.rig.application.ports.access
            await until(lambda: len(authority._tokens._keys) > 0)
            begun = (await site.rig.http.get(BEGIN)).headers["set-cookie"]
            assert begun.startswith("__Host-login-homing-")
            assert begun.endswith("; Secure")


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ({"error": "access_denied"}, "denied"),
        ({"code": "another"}, "denied"),
        ({"code": CODE, "iss": "https://other.example"}, "denied"),
        ({}, "denied"),
        ({"code": CODE, "state": "another"}, "stale"),
    ],
)
async def test_what_comes_back_wrongly_is_no_session_and_the_page_says_why(
    place: Place, query: dict[str, str], fault: str
) -> None:
    asked = await place.begin()
    assert await place.come_back(**{"state": asked["state"], **query}) == f"{CONSOLE}?login={fault}"
    assert await place.logged_in() is None
    assert place.counted(fault) == 1


async def test_a_login_that_somebody_else_has_begun_is_not_finished_here(place: Place) -> None:
    """Else a page could log somebody in as its own person, who then sees what they type."""
    asked = await place.begin()
    place.cookies.clear()
    assert await place.come_back(code=CODE, state=asked["state"]) == f"{CONSOLE}?login=stale"
    await place.begin()
    assert await place.come_back(code=CODE, state=asked["state"]) == f"{CONSOLE}?login=stale"
    assert place.issuer.forms == [], "no code goes to the issuer"


@pytest.mark.parametrize(
    ("token", "fault"),
    [("opaque", "refused"), ("a.b.c", "refused"), (f"a.{'b' * 3_800}.c", "large")],
    ids=["opaque", "unsigned", "large"],
)
async def test_a_token_that_is_no_use_is_no_session(place: Place, token: str, fault: str) -> None:
    place.issuer.tokens = lambda: token
    asked = await place.begin()
    assert await place.come_back(code=CODE, state=asked["state"]) == f"{CONSOLE}?login={fault}"
    assert await place.logged_in() is None
    assert (place.counted(fault), place.counted("accepted")) == (1, 0)


async def test_an_issuer_that_fails_or_does_not_answer_costs_a_sentence(place: Place) -> None:
    async def failed(_request: web.Request) -> web.Response:
        return web.Response(status=500)

    async def endless(_request: web.Request) -> web.Response:
        return web.Response(body=b"[" * 2_000_000)

    for exchange in (failed, endless):
        place.issuer.exchange = exchange
        asked = await place.begin()
        assert await place.come_back(code=CODE, state=asked["state"]) == f"{CONSOLE}?login=away"


async def test_who_logs_in_right_after_the_issuer_has_changed_its_keys_is_logged_in(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.access.login.jwks.EXTRA_SECONDS", 0.0)
    place.issuer.body, now = public_set(ED), seconds_now()
    place.issuer.tokens = lambda: signed(
        claims(iss=place.issuer.url, iat=now - 60, exp=now + 600, groups=[GROUP]), ED, "EdDSA"
    )
    asked = await place.begin()
    assert await place.come_back(code=CODE, state=asked["state"]) == CONSOLE
    assert await place.logged_in() is not None


async def test_a_client_is_known_by_a_secret_of_any_characters(tmp_path: Path) -> None:
    client, secret = "urn:homing:console", "p%s +wörd:"
    async with serving(public_set(EC)) as issuer:
        oidc = {"issuer": issuer.url, "audience": AUDIENCE, "client_id": client, "console_url": CONSOLE}
        async with guarded(tmp_path, oidc={**oidc, "client_secret": secret}) as site:
            authority: Any = site.rig.application.ports.access
            await until(lambda: len(authority._tokens._keys) > 0)
            place = Place(site, issuer, {})
            issuer.tokens = lambda: "a.b.c"
            asked = await place.begin()
            assert await place.come_back(code=CODE, state=asked["state"]) == f"{CONSOLE}?login=refused"
    (shown,) = issuer.clients
    assert shown is not None
    name, _, word = b64decode(shown.removeprefix("Basic ")).decode().partition(":")
    assert (unquote_plus(name), unquote_plus(word)) == (client, secret)


async def test_so_many_wait_for_the_issuer_and_no_more(place: Place) -> None:
    go_on, waiting = asyncio.Event(), 0

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal waiting
        waiting += 1
        await go_on.wait()
        return await place.issuer.give(request)

    place.issuer.exchange = slow
    asked = await place.begin()
    cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in place.cookies.items())}
    url = f"{CALLBACK}?code={CODE}&state={asked['state']}"
    finishing = [asyncio.create_task(place.site.rig.http.get(url, headers=cookie)) for _ in range(MOST_EXCHANGES)]
    await until(lambda: waiting == MOST_EXCHANGES)
    more = await place.site.rig.http.get(url, headers=cookie)
    assert more.headers["location"] == f"{CONSOLE}?login=away"
    go_on.set()
    assert {(await one).headers["location"] for one in finishing} == {CONSOLE}


async def test_an_issuer_that_says_nothing_of_logins_has_none(tmp_path: Path) -> None:
    async with serving(public_set(EC)) as issuer:
        issuer.described = {"token_endpoint": "ftp://127.0.0.1/token"}
        oidc = {"issuer": issuer.url, "audience": AUDIENCE, "client_id": "console", "console_url": CONSOLE}
        async with guarded(tmp_path, oidc=oidc) as site:
            authority: Any = site.rig.application.ports.access
            await until(lambda: len(authority._tokens._keys) > 0)
            assert (await site.rig.http.get(BEGIN)).headers["location"] == f"{CONSOLE}?login=away"


async def test_where_the_console_is_no_client_nobody_is_sent_anywhere(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        assert (await site.rig.http.get("/console/session")).json() == {"issuer": None}
        for path in (BEGIN, CALLBACK):
            answer = await site.rig.http.get(path)
            assert answer.status_code == 409
            assert "HOMING_OIDC_CLIENT_ID" in answer.json()["detail"]
