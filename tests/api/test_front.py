"""The pages at the address of a node: an index, and pages that need nothing from elsewhere."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import async_playwright

from app.api.front import ASSETS
from tests.api.rig import Rig, running
from tests.api.serving import serving
from tests.chromium import chromium_binary
from tests.waiting import PATIENCE

FLAGS = ("--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, set[str]()),
        ({"webhooks": {"secret_key": "x" * 32}, "events": {"url": "memory://"}}, {"webhooks", "events"}),
    ],
)
async def test_the_index_leads_to_what_is_there(settings: dict[str, Any], more: set[str]) -> None:
    async with running(**settings) as rig:
        await leads_to(rig, more)


async def leads_to(rig: Rig, more: set[str]) -> None:
    index = (await rig.http.get("/")).json()
    assert index["links"].keys() & {"webhooks", "events", "devices"} == more
    assert (index["name"], index["node_id"]) == ("homing", "node-a")
    for path in index["links"].values():
        assert (await rig.http.get(path)).status_code in {200, 503}, path  # its first canary may be on its way


async def test_below_a_path_the_index_leads_there(rig: Rig) -> None:
    rig.http._transport.root_path = "/api"  # type: ignore[attr-defined] # of the transport within this process
    links = (await rig.http.get("/")).json()["links"]
    assert links["nodes"] == "/api/v1/nodes"


async def test_the_page_names_its_own_files_only_and_lets_none_else_in(rig: Rig) -> None:
    response = await rig.http.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self';" in response.headers["content-security-policy"]
    named = re.findall(r'(?:href|src)="([^"]+)"', response.text)
    assert named
    for one in named:
        assert (await rig.http.get(f"/{one}")).status_code == 200, one


async def test_an_open_node_takes_requests_with_a_key_so_that_callers_can_have_theirs_first(rig: Rig) -> None:
    """docs/operations/open-to-access.md stands on this."""
    key = {"Authorization": "Bearer homing_2F7QW9ZD_secret_check"}
    assert (await rig.http.get("/v1/commands", headers=key)).status_code == 200
    assert (await rig.http.get("/v1/me", headers=key)).json() == {"open": True}


async def test_only_known_files_are_served(rig: Rig) -> None:
    for name in ("README.md", "..%2Fhttp.py", "%2e%2e/http.py", "docs.html"):
        assert (await rig.http.get(f"/assets/{name}")).status_code == 404


async def test_there_is_one_page_of_the_api(rig: Rig) -> None:
    assert (await rig.http.get("/redoc")).status_code == 404


def test_the_licence_is_there() -> None:
    assert "Apache License" in (ASSETS / "LICENSE.swagger-ui").read_text()


async def test_a_browser_without_a_network_shows_the_api(rig: Rig) -> None:
    chromium = chromium_binary()
    asked: list[str] = []
    said: list[str] = []
    async with serving(rig) as served, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(FLAGS), chromium_sandbox=False)
        page = await browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        await page.goto(f"http://127.0.0.1:{served.port}/docs")
        await page.get_by_role("heading", name="Homing").first.wait_for(timeout=PATIENCE * 1000)
        operation = page.get_by_text("Send a command to a device").first
        await operation.wait_for(timeout=PATIENCE * 1000, state="attached")
        await browser.close()
        own = f"127.0.0.1:{served.port}"
    elsewhere = [url for url in asked if urlsplit(url).scheme in ("http", "https") and urlsplit(url).netloc != own]
    assert (elsewhere, said) == ([], [])
