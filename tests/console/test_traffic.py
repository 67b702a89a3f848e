"""The pages Traffic and Try: messages that come and what profiles make of them, and of one that is typed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from app.core.messages import ReceivedMessage
from tests.console.conftest import OpenPage
from tests.console.site import Site, site
from tests.console.test_hostile import TEXTS, harmless
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

ANSWER = '{"id": "239-01JC8ZQ5M7W3T9K2V4X6Y8B0D1", "status": "ok"}'
RESPONSE = "homing/drone-1/response"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site() as one:
        yield one


@IN_EVERY_LOOK
async def test_messages_are_shown_with_what_profiles_make_of_them_and_one_can_be_tried(
    there: Site, open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    width, height = SIZES[size]
    async with open_page(
        there.page("traffic"), viewport={"width": width, "height": height}, color_scheme=theme
    ) as page:
        await page.get_by_label("Topic filter").fill("homing/drone-1/#")
        await page.get_by_role("button", name="Listen").click()
        await expect(page.get_by_role("status").filter(has_text="Listening, 0 messages")).to_be_visible()
        await expect(page.get_by_text("Does the node's user name have the right")).to_be_visible()
        there.rig.broker.publish(ReceivedMessage(RESPONSE, ANSWER.encode()))
        for text in TEXTS:
            there.rig.broker.publish(ReceivedMessage("homing/drone-1/lamp", text.encode(), qos=0))
        await expect(page.get_by_text(f"{len(TEXTS) + 1} messages")).to_be_visible()
        for summary in await page.locator("summary").all():
            await summary.click()
        await expect(page.get_by_text("No profile of this node has this topic").first).to_be_visible()
        await harmless(page)
        await flawless(page)
        await page.screenshot(path=tmp_path / f"traffic-{theme}-{width}.png")
        answer = page.locator("details").filter(has_text=RESPONSE)
        await expect(answer.get_by_role("listitem")).to_contain_text("at drone-1")
        await answer.get_by_role("link", name="Try it").click()
        await expect(page.get_by_label("Topic")).to_have_value(RESPONSE)
        await expect(page.get_by_label("Payload")).to_have_value(ANSWER)
        assert "239-" not in page.url
        await page.get_by_role("button", name="Read it").click()
        readings = page.get_by_role("status", name="Readings")
        await expect(readings).to_contain_text("homing response, rules.")
        await flawless(page)
        await page.get_by_label("Payload").fill("no JSON")
        await page.get_by_role("button", name="Read it").click()
        await expect(readings).to_contain_text("ignored as not_json")
        await page.get_by_label("Topic").fill("a/#")
        await page.get_by_role("button", name="Read it").click()
        await expect(page.get_by_role("alert")).to_contain_text("is a wildcard")


async def test_it_ends_once_and_says_so(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("traffic?topic=lamps/%23")) as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url) if "v1/traffic" in request.url else None)
        await page.route("**/v1/traffic**", lambda route: route.continue_(url=route.request.url.replace("60s", "1ms")))
        await page.get_by_role("button", name="Listen").click()
        await expect(page.get_by_text("It has ended: 0 messages")).to_be_visible()
        await page.get_by_role("button", name="Listen").click()
        await expect(page.get_by_text("It has ended: 0 messages")).to_be_visible()
    assert len(asked) == 2
