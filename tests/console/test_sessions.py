"""Logging in and out in a real browser, and pages of strangers that try to use somebody's session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.api.serving import serving
from tests.api.test_access import Site as Guarded
from tests.api.test_access import guarded
from tests.api.test_login import PASSWORD, with_people
from tests.console.conftest import OpenPage
from tests.console.site import Site
from tests.console.test_looks import flawless
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

FORGERIES: Final = """async ([url, session]) => {
    const tries = [];
    const body = '{"method":"ok"}';
    const headers = {"Content-Type": "application/json", "Homing-Request": "console"};
    for (const mode of ["cors", "no-cors"]) {
        for (const method of ["POST", "PUT", "DELETE", "GET"]) {
            for (const path of ["/v1/devices/drone-1/commands", "/console/session", "/v1/me"]) {
                const options = {method, mode, credentials: "include"};
                if (method !== "GET") options.body = body;
                tries.push(fetch(url + path, options).catch(() => null));
                tries.push(fetch(url + path, {...options, headers}).catch(() => null));
            }
        }
    }
    navigator.sendBeacon(`${url}/v1/devices/drone-1/commands`, body);
    const read = [];
    for (const one of (await Promise.all(tries)).filter(Boolean)) {
        const text = await one.text();
        if (one.type !== "opaque" || text) read.push([one.url, one.status, one.type]);
    }
    const embedded = ["img", "iframe", "script"].map((name) => new Promise((done) => {
        const one = document.createElement(name);
        one.onload = one.onerror = done;
        one.src = `${url}/v1/me`;
        document.body.append(one);
    }));
    await Promise.all(embedded);
    const form = document.createElement("form");
    Object.assign(form, {method: "post", action: `${url}/v1/devices/drone-1/commands`, enctype: "text/plain"});
    const field = document.createElement("input");
    Object.assign(field, {name: '{"method":"ok","x":"', value: '"}'});
    form.append(field);
    document.body.append(form);
    form.submit();
    return read;
}"""


@asynccontextmanager
async def guarded_site(folder: Path, **settings: Any) -> AsyncIterator[tuple[Site, Guarded]]:
    """A node that asks who calls, on a free port; and its people."""
    async with guarded(folder, **settings) as people, serving(people.rig) as served:
        await with_people(people)
        yield Site(people.rig, served), people


@pytest_asyncio.fixture(loop_scope="session")
async def there(tmp_path: Path) -> AsyncIterator[tuple[Site, Guarded]]:
    async with guarded_site(tmp_path) as found:
        yield found


async def log_in(page: Page, key: str) -> None:
    await page.get_by_label("Key", exact=True).fill(key)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("button", name="Log out")).to_be_visible()


async def test_a_key_opens_the_page_that_was_asked_for_and_stays_nowhere(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, people = there
    key = people.keys["boss"].text
    async with open_page(site.page("nodes")) as page:
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        await flawless(page)
        await log_in(page, key)
        await expect(page.get_by_role("article", name="Node node-a")).to_be_visible()
        await expect(page.get_by_text("You are boss.")).to_be_visible()
        cookies = await page.context.cookies()
        assert [(one["httpOnly"], one["sameSite"]) for one in cookies] == [(True, "Strict")]
        assert await page.evaluate("() => document.cookie") == ""
        kept = await page.evaluate("() => JSON.stringify({...localStorage, ...sessionStorage})")
        shown = await page.content()
        assert all(cookie.get("value", "") not in f"{kept}{shown}{page.url}" for cookie in cookies)
        assert key not in f"{kept}{shown}{page.url}"
        await page.reload()
        await expect(page.get_by_role("article", name="Node node-a")).to_be_visible()


async def test_a_name_and_a_password_do_too_and_a_wrong_one_says_so(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, _ = there
    async with open_page(site.page()) as page:
        await page.get_by_label("name and password").check()
        await page.get_by_label("Name", exact=True).fill("ann")
        await page.get_by_label("Password", exact=True).fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("name or password is wrong")
        await flawless(page)
        await page.get_by_label("Password", exact=True).fill(PASSWORD)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await expect(page.get_by_text("You are ann.")).to_be_visible()


async def test_after_logging_out_there_is_nothing_to_go_back_to(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, people = there
    async with open_page(site.page()) as page:
        await log_in(page, people.keys["boss"].text)
        await page.get_by_role("link", name="Nodes").click()
        await expect(page.get_by_role("article", name="Node node-a")).to_be_visible()
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_text("You have logged out.")).to_be_visible()
        assert await page.context.cookies() == []
        await page.go_back()
        await expect(page).to_have_url(site.page())
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        await expect(page.get_by_role("region", name="Verdict")).to_have_count(0)


async def test_a_key_that_is_revoked_ends_page_and_stream_and_a_new_one_goes_on(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, people = there
    async with open_page(site.page("commands")) as page:
        await log_in(page, people.keys["operator"].text)
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        revoked = await people.rig.http.delete(f"/v1/keys/{people.keys['operator'].id}", headers=people.headers("boss"))
        assert revoked.status_code == HTTPStatus.NO_CONTENT
        await expect(page.get_by_text("Your login has ended.")).to_be_visible()
        await expect(page.get_by_role("heading", name="Commands")).to_have_count(0)
        await log_in(page, people.keys["viewer"].text)
        await expect(page.get_by_text("live", exact=True)).to_be_visible()


async def test_a_page_of_another_port_can_use_nobodys_session(there: tuple[Site, Guarded], open_page: OpenPage) -> None:
    """Such a page is of the same site: SameSite alone lets its requests carry the cookie."""
    site, people = there
    async with serving(people.rig) as neighbour, open_page(site.page()) as page:
        await log_in(page, people.keys["boss"].text)
        stranger = await page.context.new_page()
        other = f"http://127.0.0.1:{neighbour.port}"
        await stranger.route(f"{other}/", lambda route: route.fulfill(body="<body>", content_type="text/html"))
        await stranger.goto(f"{other}/")
        async with stranger.expect_navigation():
            read = await stranger.evaluate(FORGERIES, [site.url, ""])
        assert read == []
        assert people.rig.store.registrations == []
        await page.reload()
        await expect(page.get_by_role("button", name="Log out")).to_be_visible()  # nor has any of them ended it
