"""The page of events: what came, what comes, gaps, and values of any size and kind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Route, expect

from tests.console.conftest import OpenPage
from tests.console.site import EVENTS, Site, has_events, publish, site
from tests.console.test_hostile import NUMBERS, TEXTS, harmless
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

LARGEST = "x" * (128 * 1024 - 2)
SINCE = "from=-24h"


@pytest_asyncio.fixture(loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site(events=EVENTS) as one:
        await has_events(one)
        yield one


async def test_events_come_live_wait_while_somebody_points_and_stop_when_paused(
    there: Site, open_page: OpenPage
) -> None:
    await publish(there, "before")
    await publish(there, "elsewhere", topic="other/topic")
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("link", name="Events")).to_be_visible()
        await page.keyboard.type("ge")
        await expect(page.get_by_role("heading", name="Events")).to_be_focused()
        await page.goto(there.page(f"events?topic=site/%23&{SINCE}"))
        await expect(page.locator("summary")).to_have_count(1)
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        await publish(there, "second")
        await expect(page.locator("summary").first).to_contain_text('"second"')
        await page.locator("summary").first.hover()
        await publish(there, "third")
        await page.get_by_role("button", name="1 new").click()
        await expect(page.locator("summary").first).to_contain_text('"third"')
        await page.get_by_role("heading", name="Events").hover()
        await page.get_by_role("button", name="Pause").click()
        await expect(page.get_by_text("paused", exact=True)).to_be_visible()
        await publish(there, "fourth")
        await page.get_by_role("button", name="Go on").click()  # goes on where it was
        await expect(page.locator("summary").first).to_contain_text('"fourth"')
        await expect(page.locator("summary")).to_have_count(4)


async def test_filters_are_in_the_address_and_a_wrong_one_is_said(there: Site, open_page: OpenPage) -> None:
    await publish(there, 1)
    async with open_page(there.page(f"events?{SINCE}")) as page:
        await expect(page.locator("summary")).to_have_count(1)
        await page.get_by_label("Topic filter").fill("nobody/+")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(there.page(f"events?topic={quote('nobody/+', safe='')}&{SINCE}"))
        await expect(page.get_by_text("Nothing came on nobody/+ yet")).to_be_visible()
        await flawless(page)
        await page.get_by_label("Topic filter").fill("a/#/b")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("answered 422")
        await flawless(page)


async def test_a_gap_is_told_where_it_is(there: Site, open_page: OpenPage) -> None:
    asked: list[str | None] = []

    def event(name: str, data: object, identity: str) -> str:
        return f"id: {identity}\nevent: {name}\ndata: {json.dumps(data)}\n\n"

    said = {"position": 1, "at": "2020-11-21T10:00:00Z", "topic": "a", "device_id": None, "kind": None, "id": None}

    async def answer(route: Route) -> None:
        asked.append(await route.request.header_value("last-event-id"))
        if len(asked) > 1:
            await route.abort()
            return
        body = event("event", said | {"data": 1}, "c1") + event("gap", {"until": "2020-11-21T11:00:00Z"}, "c1")
        body += event("event", said | {"data": 2}, "c2") + event("problem", {"title": "x", "detail": TEXTS[0]}, "c2")
        await route.fulfill(body=body, content_type="text/event-stream")

    async with open_page(there.page(), timezone_id="UTC") as page:
        await page.route("**/v1/events/stream*", answer)
        await page.goto(there.page("events"))
        await expect(page.locator(".values > *")).to_have_count(3)
        await expect(page.locator(".values > *").nth(1)).to_contain_text("Gap: events before 2020-11-21 11:00:00")
        await expect(page.get_by_text(f"The stream broke off: {TEXTS[0]}")).to_be_visible()
        await expect(page.get_by_text("connection lost, trying again")).to_be_visible()
        assert asked[1:2] == ["c2"]
        await flawless(page)


async def test_a_device_leads_to_its_events(there: Site, open_page: OpenPage) -> None:
    await publish(there, {"celsius": 91.50}, topic="homing/lamp-1/event")
    async with open_page(there.page("devices/lamp-1")) as page:
        await page.get_by_role("link", name="Events of homing/lamp-1/#").click()
        await expect(page.get_by_label("Topic filter")).to_have_value("homing/lamp-1/#")
        await page.locator("summary").click()
        await expect(page.get_by_role("region", name="Value")).to_contain_text("91.5")
        await page.get_by_role("link", name="lamp-1").click()
        await expect(page.get_by_role("heading", name="lamp-1")).to_be_visible()


async def test_a_node_without_events_has_no_such_entry_and_says_what_it_needs(open_page: OpenPage) -> None:
    async with site() as plain, open_page(plain.page()) as page:
        await expect(page.get_by_text("This node asks nobody who they are.")).to_be_visible()
        await expect(page.get_by_role("link", name="Events")).to_have_count(0)
        await page.goto(plain.page("events"))
        await expect(page.get_by_text("HOMING_EVENTS_URL")).to_be_visible()
        await flawless(page)


async def test_no_text_of_an_event_becomes_anything_else_and_large_ones_are_folded(
    there: Site, open_page: OpenPage
) -> None:
    topics = [f"site/{one.replace('+', '').replace('#', '').replace('/', '')[:200]}" for one in TEXTS]
    for topic in topics:
        if topic.isprintable():
            await publish(there, list(TEXTS), topic=topic)
    raw = f'[{{"topic": "site/a", "data": {NUMBERS}}}, {{"topic": "site/a", "data_base64": "/wA8Yj4="}}]'
    found = await there.rig.http.post("/v1/events", content=raw, headers={"Content-Type": "application/json"})
    assert found.is_success, found.text
    await publish(there, LARGEST)
    async with open_page(there.page(f"events?{SINCE}")) as page:
        await expect(page.locator("summary").first).to_contain_text("131,072 bytes")
        assert len(await page.locator("summary").first.inner_text()) < 300
        await page.locator("summary").first.click()
        await page.get_by_role("button", name="Show all 131,072 bytes").click()
        await harmless(page)
        for number in (1, 2, 4, 9):
            await page.locator("summary").nth(number).click()
        await expect(page.get_by_text('"big": 9007199254740993')).to_be_visible()
        await expect(page.get_by_text("no JSON: its bytes in base64")).to_be_visible()
        await harmless(page)
        for text in TEXTS[::3]:
            await page.goto(
                there.page(f"events?topic={quote(text[:100], safe='')}&database={quote(text[:20], safe='')}")
            )
            await expect(page.get_by_role("heading", name="Events")).to_be_visible()
            await harmless(page)


@IN_EVERY_LOOK
async def test_the_page_of_events_is_accessible_and_fits(
    there: Site, open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    await publish(there, {"number": 7, "text": "too hot"}, {"number": 8}, LARGEST)
    await publish(there, {"celsius": 91.5}, topic="homing/lamp-1/event")
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    async with open_page(there.page(f"events?{SINCE}"), **options) as page:
        await expect(page.locator("summary")).to_have_count(4)
        await page.locator("summary").first.click()
        await page.locator("summary").last.click()
        await expect(page.get_by_role("region", name="Value")).to_have_count(2)
        await flawless(page)
        await page.screenshot(path=tmp_path / f"events-{theme}-{width}.png", full_page=True)
