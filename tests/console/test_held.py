"""Held commands in the console: what waits, until when, and the end of the wait."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.console.conftest import OpenPage
from tests.console.site import EVENTS, Site, has_events, site, tell_presence
from tests.console.test_hostile import TEXTS, harmless
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

EVERY_MS = 10_000
"""After so long a page looks again by itself."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site(events=EVENTS) as one:
        await has_events(one)
        await tell_presence(one, ["dock-1"])
        await tell_presence(one, ["dock-1"], online=False)
        yield one


async def test_what_is_held_says_what_it_waits_for_and_ends_after_a_question(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("held")) as page:
        await expect(page.get_by_text("Nothing is held")).to_be_visible()
        await flawless(page)
        first = await there.send("cover_open", device="dock-1", hold="8h")
        await there.send("cover_close", device="dock-1", hold="8h")
        await page.goto(there.page(f"commands/{first}"))
        waits = page.get_by_role("region", name="What it waits for")
        await expect(waits).to_contain_text("It waits for the device to be there.")
        await expect(page.get_by_role("region", name="Explanation")).to_contain_text("Waits to be sent")
        await page.get_by_role("link", name="All that is held").click()
        row = page.get_by_role("row").filter(has_text="cover_open")
        await expect(row).to_contain_text("0 tries")
        await row.get_by_role("button").click()
        await expect(page.get_by_role("button", name="No", exact=True)).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Cancel it")).to_have_count(0)
        await expect(page.get_by_text("2 commands shown")).to_be_visible()
        await row.get_by_role("button").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
        await expect(page.get_by_text("cover_open on dock-1 is cancelled.")).to_be_visible()
        await expect(page.get_by_text("1 command shown")).to_be_visible()
        assert (await there.rig.http.get(f"/v1/commands/{first}")).json()["state"] == "cancelled"
        await page.goto(there.page("commands?state=held"))
        await expect(page.get_by_role("row").filter(has_text="cover_close")).to_contain_text("held")


async def test_what_is_sent_is_not_shown_as_held_any_more(there: Site, open_page: OpenPage) -> None:
    held = await there.send("cover_open", device="dock-1", hold="8h")
    async with open_page(there.page("held")) as page:
        await page.clock.install()
        answered: list[str] = []
        page.on("requestfinished", lambda request: answered.append(request.url))
        await page.goto(there.page(f"commands/{held}"))
        waits = page.get_by_role("region", name="What it waits for")
        await expect(waits).to_be_visible()
        explained = f"{there.url}/v1/commands/{held}/explain"
        await eventually(lambda: answered.count(explained) > 1)  # once more after the first event of the stream
        await tell_presence(there, ["dock-1"])

        async def is_sent() -> bool:
            return bool((await there.rig.http.get(f"/v1/commands/{held}")).json()["state"] != "held")

        await eventually(is_sent)
        await page.clock.fast_forward(EVERY_MS)
        await expect(waits).to_have_count(0)
        await expect(page.get_by_text("left to its deadline")).to_be_visible()
    await tell_presence(there, ["dock-1"], online=False)


@IN_EVERY_LOOK
async def test_the_page_is_accessible_and_takes_texts_as_they_are(
    there: Site, open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    held = await there.send("cover_open", device="dock-1", hold="1h")
    found = (await there.rig.http.get(f"/v1/commands/{held}")).json()
    rows = [
        {**found, "id": f"{at}", "device_id": text, "method": text, "hold": {**found["hold"], "waits_for": [text]}}
        for at, text in enumerate(TEXTS)
    ]
    body = json.dumps({"commands": rows, "cursor": None})
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    async with open_page(there.page(), **options) as page:
        await page.route("**/v1/commands?state=held*", lambda route: route.fulfill(body=body))
        await page.goto(there.page("held"))
        await expect(page.get_by_text(f"{len(TEXTS)} commands shown")).to_be_visible()
        await harmless(page)
        await page.unroute("**/v1/commands?state=held*")
        await page.get_by_role("button", name="Read again").click()
        await expect(page.get_by_text(f"{len(TEXTS)} commands shown")).to_have_count(0)
        await flawless(page)
        await page.screenshot(path=tmp_path / f"held-{theme}-{width}.png", full_page=True)
        await page.get_by_role("button", name="Cancel …").first.click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await flawless(page)
