"""The list of devices: those on record and those that were heard of, with who is there and whose commands fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Route, expect

from tests.console.conftest import OpenPage
from tests.console.site import EVENTS, Site, answers, has_events, site, tell_presence
from tests.console.test_hostile import TEXTS, harmless
from tests.console.test_looks import flawless
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

EVERY_MS = 10_000
"""After so long a page looks again by itself."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[Site]:
    """Two docks that are there, one that has gone, and a drone whose command has failed."""
    async with site(events=EVENTS) as one:
        await has_events(one)
        await tell_presence(one, ["dock-1", "dock-2", "dock-3"])
        await tell_presence(one, ["dock-3"], online=False)
        await one.ended("refuse")
        yield one


async def test_who_is_there_and_whose_commands_fail(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("devices")) as page:
        await expect(page.get_by_text("4 devices shown")).to_be_visible()
        await expect(page.get_by_role("row").filter(has_text="dock-3")).to_contain_text("offline")
        drone = page.get_by_role("row").filter(has_text="drone-1")
        for text in ("presence unknown", "not on record", "1 failure"):
            await expect(drone).to_contain_text(text)
        await page.get_by_label("Device id").fill("dock-*")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(there.page("devices?id=dock-*"))
        await expect(page.get_by_text("3 devices shown")).to_be_visible()
        await page.keyboard.press("Tab")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("dock-1")
        await page.goto(there.page("devices?id=lamp-*"))
        await expect(page.get_by_text("No device that you may read fits this pattern.")).to_be_visible()
        await page.get_by_label("Device id").fill("lamp-7")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("lamp-7")


async def test_a_device_that_goes_away_is_seen_to_be_away(there: Site, open_page: OpenPage) -> None:
    async with open_page(f"{there.url}/healthz") as page:
        await page.clock.install()
        await page.goto(there.page("devices/dock-2"))
        await expect(page.get_by_text("online")).to_be_visible()
        await tell_presence(there, ["dock-2"], online=False)
        await page.clock.fast_forward(EVERY_MS)
        await expect(page.get_by_text("offline")).to_be_visible()
        await page.goto(there.page("devices"))
        row = page.get_by_role("row").filter(has_text="dock-2")
        await expect(row).to_contain_text("offline")
        await tell_presence(there, ["dock-2"])
        await page.clock.fast_forward(EVERY_MS)
        await expect(row).to_contain_text("online")


async def test_no_text_of_a_device_becomes_anything_else(there: Site, open_page: OpenPage) -> None:
    (one, *_) = (await there.rig.http.get("/v1/devices?heard=true")).json()["devices"]
    attacked = [
        {**one, "id": text, "tenant": text, "profile": text, "labels": {text: text}, "note": text, "on_record": True}
        for text in TEXTS
    ]
    async with open_page(there.page()) as page:
        await answers(page, "**/v1/devices?*", {"devices": attacked, "cursor": None})
        await page.goto(there.page("devices"))
        await expect(page.get_by_text(f"{len(TEXTS)} devices shown")).to_be_visible()
        await expect(page.get_by_text("⟨U+202E⟩turned").first).to_be_visible()
        await harmless(page)


async def test_what_comes_late_of_another_list_is_left_out(there: Site, open_page: OpenPage) -> None:
    (one, *_) = (await there.rig.http.get("/v1/devices?heard=true")).json()["devices"]
    asked, let = asyncio.Event(), asyncio.Event()

    async def answer(route: Route) -> None:
        found: dict[str, Any] = {"devices": [{**one, "id": "dock-1"}], "cursor": "c1"}
        if "cursor=c1" in route.request.url:
            asked.set()
            await let.wait()
            found = {"devices": [{**one, "id": "dock-2"}], "cursor": None}
        elif "id=lamp" in route.request.url:
            found = {"devices": [{**one, "id": "lamp-1"}], "cursor": None}
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    async with open_page(there.page()) as page:
        await page.route("**/v1/devices?*", answer)
        await page.goto(there.page("devices"))
        await page.get_by_role("button", name="More").click()
        await asked.wait()
        await page.goto(there.page("devices?id=lamp-*"))
        await expect(page.get_by_text("1 device shown")).to_be_visible()
        async with page.expect_response("**/v1/devices?*cursor=c1*") as late:
            let.set()
        await (await late.value).finished()
        await page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        await expect(page.get_by_role("link", name="lamp-1")).to_be_visible()
        await expect(page.get_by_text("1 device shown")).to_be_visible()


async def test_a_page_that_was_asked_for_twice_is_shown_once(there: Site, open_page: OpenPage) -> None:
    (one, *_) = (await there.rig.http.get("/v1/devices?heard=true")).json()["devices"]
    asked, let = asyncio.Semaphore(0), asyncio.Event()

    async def answer(route: Route) -> None:
        found: dict[str, Any] = {"devices": [{**one, "id": "dock-1"}], "cursor": "c1"}
        if "cursor=c1" in route.request.url:
            asked.release()
            await let.wait()
            found = {"devices": [{**one, "id": "dock-2"}], "cursor": "c2"}
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    async with open_page(there.page()) as page:
        await page.route("**/v1/devices?*", answer)
        await page.goto(there.page("devices"))
        for _ in range(2):
            await page.get_by_role("button", name="More").click()
            await asked.acquire()
        async with page.expect_response("**/v1/devices?*cursor=c1*") as first:
            let.set()
        await (await first.value).finished()
        await expect(page.get_by_role("link", name="dock-2")).to_be_visible()
        await page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        await expect(page.get_by_text("2 devices shown")).to_be_visible()


async def refuse(status: int, said: str, route: Route) -> None:
    """Answer a request with a problem."""
    await route.fulfill(status=status, body=json.dumps({"title": "Not now", "detail": said, "status": status}))


async def test_who_may_not_read_them_and_what_is_away_is_told(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page()) as page:
        for status, said in ((403, "no rule of ci allows it"), (503, "the store does not answer")):
            await page.unroute_all()
            await page.route("**/v1/devices?*", partial(refuse, status, said))
            await page.goto(there.page("devices"))
            await expect(page.get_by_text(said)).to_be_visible()
            await flawless(page)
            await page.goto(there.page())
            await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
