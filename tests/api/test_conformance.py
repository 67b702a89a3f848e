"""Requests that a program made up, and to which answers and `/openapi.json` once said different things."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.rig import Rig
from tests.api.test_access import Site, guarded
from tests.api.test_administration import ask


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        yield site


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/keys"), ("PUT", "/v1/devices/lamp-1"), ("PUT", "/v1/tenants/x"), ("PUT", "/v1/roles/x")],
)
async def test_a_body_that_is_no_utf8_is_as_wrong_as_one_that_is_no_json(site: Site, method: str, path: str) -> None:
    headers = {**site.headers("admin"), "Content-Type": "application/json"}
    for content in (b"\xff\xfe", b"{"):
        answer = await site.rig.http.request(method, path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:homing:problem:invalid-input")
        assert answer.json()["errors"][0]["field"].startswith("body")


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match"])
async def test_a_condition_that_is_empty_is_not_none(site: Site, header: str) -> None:
    """`-H "If-Match: $TAG"` with a variable that is empty must not change what somebody else has changed."""
    answer = await ask(site, "admin", "PUT", "/roles/pilot", {"rules": []}, headers={header: ""})
    assert answer.status_code == 422
    assert answer.json()["detail"] == f'{header}: is empty; allowed: * or "…", as ETag gave it'


async def test_what_is_given_to_somebody_is_no_principal(site: Site) -> None:
    path = "/principals/group:night%20shift/bindings"
    answer = await ask(site, "admin", "DELETE", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PUT")
    assert (await ask(site, "admin", "PUT", "/principals/air%2Fb", {"name": "a"})).status_code == 201
    assert (await ask(site, "admin", "DELETE", "/principals/air%2Fb")).status_code == 204


async def test_nothing_is_taken_for_what_it_is_not(site: Site) -> None:
    for path, body in {
        "/keys": {"days": "90"},
        "/keys/K/rotate": {"never": 0},
        "/principals/x": {"disabled": "no"},
    }.items():
        method = "PUT" if path == "/principals/x" else "POST"
        answer = await ask(site, "admin", method, path, body)
        assert (answer.status_code, answer.json().get("type")) == (422, "urn:homing:problem:invalid-input"), path


@pytest.mark.parametrize(
    "query",
    ["/audit?who=", "/audit?device=", "/audit?since=0.5", "/devices?tenant=", "/devices?profile=", "/roles/x?tenant="],
)
async def test_a_filter_that_says_nothing_is_refused(site: Site, query: str) -> None:
    assert (await ask(site, "admin", "GET", query)).status_code == 422


async def test_a_node_says_whether_it_asks_for_a_key(rig: Rig, site: Site) -> None:
    needed = {"key": list[str]()}
    for one, expected in ((rig, [{}, needed]), (site.rig, [needed])):
        document = (await one.http.get("/openapi.json")).json()
        assert document["paths"]["/v1/commands"]["get"]["security"] == expected
        assert "security" not in document["paths"]["/healthz"]["get"]
