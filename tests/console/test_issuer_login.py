"""Logging in at an OIDC issuer in a real browser, and what the page says where that comes to nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from app.core.access.changes import Put
from app.core.access.code_flow import CALLBACK
from app.core.access.model import Binding
from homing_rig.issuer import Issuer, serving
from tests.api.rig import until
from tests.api.test_oidc import GROUP, seconds_now
from tests.console.conftest import OpenPage
from tests.console.site import Site
from tests.console.test_looks import flawless
from tests.console.test_sessions import guarded_site
from tests.unit.access.signing import AUDIENCE, EC, claims, public_set, signed
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)


@pytest_asyncio.fixture(loop_scope="session")
async def place(tmp_path: Path) -> AsyncIterator[tuple[Site, Issuer]]:
    async with serving(public_set(EC)) as issuer:
        now = seconds_now()
        issuer.tokens = lambda: signed(claims(iss=issuer.url, iat=now - 60, exp=now + 600, groups=[GROUP]), EC, "ES256")
        console = "http://127.0.0.1/console/"
        oidc = {"issuer": issuer.url, "audience": AUDIENCE, "client_id": "console", "console_url": console}
        async with guarded_site(tmp_path, oidc=oidc) as (site, people):
            await people.change(Put(Binding(id="b", subject=f"group:{GROUP}", role="operator", tenant_id="air")))
            ports: Any = people.rig.application.ports
            # Its port is known only now.
            url = site.page().partition("#")[0]
            ports.issuer_logins.client = replace(ports.issuer_logins.client, redirect_url=url + CALLBACK)
            await until(lambda: len(ports.access._tokens._keys) > 0)
            yield site, issuer


async def test_who_logs_in_there_comes_back_to_the_page_that_was_asked_for(
    place: tuple[Site, Issuer], open_page: OpenPage
) -> None:
    site, issuer = place
    async with open_page(site.page("devices")) as page:
        at_issuer = page.get_by_role("link", name="Log in at 127.0.0.1")
        await expect(at_issuer).to_be_visible()
        await flawless(page)
        await at_issuer.click()
        await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
        await expect(page.get_by_text(f"You are oidc:{issuer.url}#ada.")).to_be_visible()
        assert page.url == site.page("devices")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_text("You have logged out.")).to_be_visible()
        assert await page.context.cookies() == []


async def test_what_came_to_nothing_is_said_once(place: tuple[Site, Issuer], open_page: OpenPage) -> None:
    site, issuer = place
    issuer.tokens = lambda: "opaque"
    async with open_page(site.page()) as page:
        await page.get_by_role("link", name="Log in at 127.0.0.1").click()
        await expect(page.get_by_role("alert")).to_contain_text("its token does not count here")
        await flawless(page)
        assert "login=" not in page.url
        await page.reload()
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)
