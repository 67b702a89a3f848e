"""Sessions of the console: a login whose key is a cookie, and what others can do with that: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.core.access.changes import Revoke
from app.runtime.system import SystemClock
from app.server.hosts import Hosts
from tests.api.rig import COMMANDS, Rig, until
from tests.api.serving import Served, answer_to, serving
from tests.api.test_access import OWN, Site, guarded
from tests.api.test_framing import statuses
from tests.api.test_login import PASSWORD, with_people

CONSOLE: Final = {"Homing-Request": "console"}
BODY: Final = '{"method":"ok"}'


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        await with_people(site)
        yield site


async def begun(site: Site, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return await site.rig.http.post("/console/session", json=body, headers={**CONSOLE, **(headers or {})})


def cookie_of(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 201, answer.text
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


async def session_of(site: Site, who: str = "operator") -> dict[str, str]:
    """The headers of a browser that has logged in by the key of this service."""
    return cookie_of(await begun(site, key=site.keys[who].text)) | CONSOLE


async def me(site: Site, headers: dict[str, str]) -> httpx.Response:
    site.rig.http.cookies.clear()
    return await site.rig.http.get("/v1/me", headers=headers)


async def test_a_key_begins_a_login_that_may_do_the_same_and_shows_it_to_no_script(site: Site) -> None:
    answer = await begun(site, key=site.keys["operator"].text)
    given = answer.headers["set-cookie"]
    assert given.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert answer.headers["cache-control"] == "no-store"
    assert "homing_" not in answer.text
    found = (await me(site, cookie_of(answer) | CONSOLE)).json()
    assert (found["principal"], found["session"], found["roles"]) == ("operator", True, ["operator"])
    assert found["key"] != site.keys["operator"].id
    assert found["expires_at"] == answer.json()["expires_at"]
    sent = await site.rig.http.post(COMMANDS, json={"method": "ok"}, headers=cookie_of(answer) | CONSOLE)
    assert sent.status_code == 200


async def test_a_name_and_a_password_begin_one_too(site: Site) -> None:
    session = cookie_of(await begun(site, name="ann", password=PASSWORD)) | CONSOLE
    assert (await me(site, session)).json()["principal"] == "ann"
    assert (await begun(site, name="ann", password="wrong")).status_code == 401


async def test_behind_tls_the_cookie_is_one_that_only_this_host_can_set(site: Site) -> None:
    answer = await begun(site, {"Origin": "https://test"}, key=site.keys["operator"].text)
    given = answer.headers["set-cookie"]
    assert given.startswith("__Host-homing-")
    assert given.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
    session = cookie_of(answer)["Cookie"]
    plain = (await session_of(site, "viewer"))["Cookie"]
    for both in (f"{session}; {plain}", f"{plain}; {session}"):
        assert (await me(site, {"Cookie": both, **CONSOLE})).json()["principal"] == "operator"


async def test_a_narrowed_key_begins_a_login_that_is_narrowed_and_ends_with_it(site: Site) -> None:
    later = int(SystemClock().wall() * 1_000_000) + 600_000_000
    await site.add("narrow", "operator", narrow=["allow read *:* on *"], expires_us=later)
    session = await session_of(site, "narrow")
    assert (await site.rig.http.post(COMMANDS, json={"method": "ok"}, headers=session)).status_code == 403
    expires_at = (await me(site, session)).json()["expires_at"]
    assert expires_at == (await me(site, site.headers("narrow"))).json()["expires_at"]


async def test_the_key_of_a_device_begins_none(site: Site) -> None:
    made = await site.rig.http.post("/v1/keys", json={"device": OWN}, headers=site.headers("boss"))
    assert made.status_code == 201, made.text
    refused = await begun(site, key=made.json()["key"])
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)


async def test_logging_out_ends_the_login_and_takes_the_cookie_away(site: Site) -> None:
    session = await session_of(site)
    gone = await site.rig.http.delete("/console/session", headers=session)
    assert gone.status_code == 204
    assert "Max-Age=0" in gone.headers["set-cookie"]
    assert (await me(site, session)).status_code == 401
    assert (await me(site, site.headers("operator"))).status_code == 200  # the key that began it goes on
    assert (await site.rig.http.delete("/console/session", headers=session)).status_code == 204
    assert (await site.rig.http.delete("/console/session", headers=CONSOLE)).status_code == 204


async def test_a_key_that_is_revoked_ends_what_it_has_begun_and_those_who_wait(site: Site) -> None:
    first = await session_of(site, "operator")
    second = cookie_of(await begun(site, key=first["Cookie"].partition("=")[2])) | CONSOLE
    body = {"method": "silent", "timeout": "1m"}
    waiting = asyncio.create_task(site.rig.http.post(COMMANDS, json=body, headers=second))
    await until(lambda: len(site.rig.application.parking) == 1)
    revoked = await site.rig.http.delete(f"/v1/keys/{site.keys['operator'].id}", headers=site.headers("boss"))
    assert revoked.status_code == 204
    assert (await waiting).status_code == 401
    for session in (first, second):
        assert (await me(site, session)).status_code == 401


async def test_a_key_that_is_rotated_ends_what_it_has_begun_when_it_ends(site: Site) -> None:
    session = await session_of(site, "operator")
    path = f"/v1/keys/{site.keys['operator'].id}/rotate"
    rotated = await site.rig.http.post(path, json={"grace": "0s"}, headers=site.headers("boss"))
    assert rotated.is_success, rotated.text
    for headers in (site.headers("operator"), session):
        assert (await me(site, headers)).status_code == 401


async def test_a_login_that_is_revoked_by_its_own_id_ends(site: Site) -> None:
    session = await session_of(site)
    await site.change(Revoke(credential_id=(await me(site, session)).json()["key"], at_us=1))
    assert (await me(site, session)).status_code == 401


async def test_a_key_in_the_header_counts_before_a_session(site: Site) -> None:
    session = await session_of(site)
    found = (await me(site, session | site.headers("viewer"))).json()
    assert (found["principal"], found["session"]) == ("viewer", False)
    assert (await me(site, session | {"Authorization": "Bearer homing_x"})).status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"key": "homing_x"}, 401, "does not have the form"),
        ({"key": 5}, 422, "is needed, as a text"),
        ({"key": "k", "name": "ann"}, 422, "is unknown; allowed: key"),
        ({"name": "ann"}, 422, "is needed, as a text"),
        ({"secret": "k"}, 422, "is unknown; allowed: name, password, tenant"),
        ({}, 422, "is needed, as a text"),
    ],
)
async def test_what_begins_no_session_says_why_and_repeats_nothing(
    site: Site, body: dict[str, Any], status: int, said: str
) -> None:
    refused = await begun(site, **body)
    assert (refused.status_code, "set-cookie" in refused.headers) == (status, False)
    assert said in refused.json()["detail"]


async def test_somebody_who_tries_key_after_key_has_to_wait(site: Site) -> None:
    answers = [await begun(site, key=site.keys["operator"].text) for _ in range(6)]
    assert [one.status_code for one in answers] == [201] * 5 + [429]


async def test_an_open_node_has_no_sessions_and_minds_no_cookie(rig: Rig) -> None:
    for answer in (
        await rig.http.post("/console/session", json={"key": "homing_x"}, headers=CONSOLE),
        await rig.http.delete("/console/session", headers=CONSOLE),
    ):
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:homing:problem:nothing-to-log-in-to")
    cookie = {"Cookie": "homing-00000000=homing_x", **CONSOLE}
    assert (await rig.http.get("/v1/me", headers=cookie)).json() == {"open": True}


OURS: Final = ("Homing-Request: console",)
HOST: Final = ("Host: localhost",)
JSON: Final = ("Content-Type: application/json",)
FORM: Final = ("Content-Type: application/x-www-form-urlencoded",)
ORIGINS: Final = (
    *("http://evil.example", "https://evil.example", "null", "", "file://", "http://localhost.evil.example"),
    *(
        "http://localhost:3000",
        "http://127.0.0.1:3000",
        "http://[::1]:3000",
        "https://[::1]",
        "http://localhost@e.f",
    ),
)
HOSTS: Final = ("evil.example", "evil.example:80", "localhost.evil.example", "10.0.0.7", "[2001:db8::1]", "2130706433")
NO_HEADERS: Final = (
    (),
    *[
        (f"Homing-Request: {said}",)
        for said in ("Console", "1", "console,", "console x", "xconsole", '"console"', "docs")
    ],
    ("Homing-Request: console", "Homing-Request: console"),
    ("Homing_Request: console",),
    ("X-Homing-Request: console",),
    ("X-Requested-With: XMLHttpRequest",),
)
FORGED: Final = (
    *[("POST", COMMANDS, (*HOST, *JSON, *headers)) for headers in NO_HEADERS],
    *[("POST", COMMANDS, (*HOST, *FORM, *headers)) for headers in NO_HEADERS[:4]],
    *[("POST", COMMANDS, (*HOST, *JSON, *OURS, f"Origin: {origin}")) for origin in ORIGINS],
    *[("POST", COMMANDS, (*JSON, *OURS, f"Host: {host}")) for host in HOSTS],
    *[("POST", COMMANDS, (*JSON, *OURS, f"Host: {host}", f"Origin: http://{host}")) for host in HOSTS],  # rebound
    *[("DELETE", "/console/session", (*HOST, *headers)) for headers in NO_HEADERS[:8]],
    *[("DELETE", "/console/session", (*HOST, *OURS, f"Origin: {origin}")) for origin in ORIGINS],
    *[("GET", "/v1/me", (*HOST, *headers)) for headers in NO_HEADERS[:8]],  # an image, a frame, a script
    *[
        ("POST", COMMANDS, (*HOST, *FORM, *OURS, f"Origin: {one}"))
        for one in ("http://localhost", "http://evil.example")
    ],
    ("POST", COMMANDS, (*HOST, "Content-Type: text/plain", *OURS)),
    ("OPTIONS", COMMANDS, (*HOST, "Origin: http://evil.example", "Access-Control-Request-Headers: homing-request")),
)


@pytest.fixture
async def served(site: Site) -> AsyncIterator[Served]:
    async with serving(site.rig, hosts=Hosts((), loopback=True)) as served:
        yield served


def raw(method: str, target: str, *headers: str) -> bytes:
    lines = (f"{method} {target} HTTP/1.1", *headers, f"Content-Length: {len(BODY)}", "Connection: close", "", BODY)
    return "\r\n".join(lines).encode()


async def test_no_forged_request_is_obeyed(site: Site, served: Served) -> None:
    session = (await session_of(site))["Cookie"]
    assert len(FORGED) >= 60
    for method, target, headers in FORGED:
        found = statuses(await answer_to(served.port, raw(method, target, *headers, f"Cookie: {session}")))
        assert found, headers
        assert found[0] in {400, 401, 403, 405, 415, 421}, (method, target, headers, found)
    assert site.rig.store.registrations == []
    genuine = raw("POST", COMMANDS, *HOST, *JSON, *OURS, "Origin: http://localhost", f"Cookie: {session}")
    assert statuses(await answer_to(served.port, genuine)) == [200]  # nothing of all that has ended it


@pytest.mark.parametrize(
    "cookies", ["{0}; {0}", "{0}; {1}", "x{0}", "{0}x", "homing-00000000=homing_x", "; ;=;{2}", 'a="{0}"']
)
async def test_a_cookie_beside_ours_or_like_it_is_none(site: Site, cookies: str) -> None:
    session = (await session_of(site))["Cookie"]
    name, _, _ = session.partition("=")
    sent = cookies.format(session, f"{name}=homing_other", f"{name}=")
    assert (await me(site, {"Cookie": sent, **CONSOLE})).status_code == 401
    assert (await me(site, {"Cookie": f"a=b; {session}; c=d", **CONSOLE})).status_code == 200
