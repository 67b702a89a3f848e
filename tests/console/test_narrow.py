"""Every page at 320 CSS pixels, and on a desktop at 200 %: nothing has to be scrolled sideways; and rights that end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.console.conftest import OpenPage
from tests.console.site import ALARMS, EVENTS, Site, furnished, furnished_queues, site
from tests.console.test_hostile import SIDEWAYS
from tests.console.test_looks import STICKING_OUT
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

WIDTHS: Final = (320, 640)
"""The narrowest that WCAG 1.4.10 names, and a desktop of 1280 at 200 %."""
ROUTES: Final = (
    *("", "commands", "devices", "devices/drone-1", "devices/dock-1/send?profile=dji", "fleets", "fleets/new"),
    *("queues", f"queues/{ALARMS}", "events?from=-1h", "webhooks", "nodes", "profiles", "profiles/dji", "traffic"),
    *("try", "draft", "latency", "held", "schedules", "access/keys", "nowhere"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[tuple[Site, dict[str, str]]]:
    async with site(events=EVENTS) as one:
        made = await furnished(one)
        await furnished_queues(one)
        yield one, made


async def test_no_page_is_scrolled_sideways(there: tuple[Site, dict[str, str]], open_page: OpenPage) -> None:
    node, made = there
    wide: list[str] = []
    async with open_page(node.page()) as page:
        for route in (*ROUTES, f"commands/{made['silent']}", f"commands/{made['open']}"):
            await page.goto(node.page(route))
            await expect(page.get_by_role("heading").first).to_be_attached()
            await expect(page.get_by_label("Loading")).to_have_count(0)
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 700})
                if await page.evaluate(SIDEWAYS):
                    wide.append(f"{route} at {width}: {await page.evaluate(STICKING_OUT)}")
    assert wide == []


async def refuse(page: Page, path: str, method: str) -> None:
    """Answer such requests as a node does once the right has ended."""
    body = json.dumps({"title": "Not allowed", "status": 403, "detail": "no rule of viewer allows it on drone-1"})
    kind = "application/problem+json"

    await page.route(
        path,
        lambda route: (
            route.fulfill(status=403, body=body, content_type=kind)
            if route.request.method == method
            else route.continue_()
        ),
    )


async def test_a_right_that_has_ended_is_told_where_it_was_used(
    there: tuple[Site, dict[str, str]], open_page: OpenPage
) -> None:
    node, made = there
    async with open_page(node.page("devices/drone-1/send")) as page:
        await refuse(page, "**/v1/devices/drone-1/commands", "POST")
        await page.get_by_label("Method", exact=True).fill("ok")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("no rule of viewer allows it")
        await expect(page.get_by_label("Method", exact=True)).to_have_value("ok")
        await refuse(page, "**/cancel", "POST")
        await page.goto(node.page(f"commands/{made['open']}"))
        await page.get_by_role("button", name="Cancel …").click()
        dialog = page.get_by_role("dialog")
        await dialog.locator("button.danger").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("no rule of viewer allows it")
        await dialog.get_by_role("button", name="No").click()
        await expect(dialog).to_have_count(0)
