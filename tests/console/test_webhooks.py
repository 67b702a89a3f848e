"""The pages of webhooks: a secret that is shown once, deliveries and why they failed, and once more."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import expect

from homing_rig.receivers import Receiver, receiving
from tests.console.conftest import OpenPage
from tests.console.site import Site, answers, asked_again, site
from tests.console.test_hostile import TEXTS, harmless
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

SERVED: Final = {"secret_key": "0123456789abcdef" * 4, "networks": "127.0.0.0/8", "plain_http": True}
SECRET: Final = re.compile("whsec_")


@dataclass
class Told:
    """A node, and who is told of outcomes."""

    site: Site
    receiver: Receiver

    async def create(self, **members: Any) -> dict[str, Any]:
        """A new webhook."""
        body = {"url": self.receiver.url, "events": ["command.succeeded"], **members}
        made: dict[str, Any] = (await self.site.rig.http.post("/v1/webhooks", json=body)).json()
        return made

    async def refused(self, hook: dict[str, Any]) -> None:
        """Return once a delivery was given up, and the webhook is disabled: 410 is for good."""
        self.receiver.answer = gone
        await self.site.ended("ok")

        async def is_disabled() -> bool:
            return not (await self.site.rig.http.get(f"/v1/webhooks/{hook['id']}")).json()["enabled"]

        await eventually(is_disabled)


async def gone(_request: web.Request) -> web.Response:
    return web.Response(status=410, text="<b>gone</b>")


async def fine(_request: web.Request) -> web.Response:
    return web.Response(status=204)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[Told]:
    async with site(webhooks=SERVED) as one, receiving() as receiver:
        yield Told(one, receiver)


async def test_a_webhook_is_made_and_its_secret_is_shown_once(there: Told, open_page: OpenPage) -> None:
    page_of = there.site.page
    async with open_page(page_of()) as page:
        await expect(page.get_by_role("link", name="Webhooks")).to_be_visible()
        await page.keyboard.type("gw")
        await expect(page.get_by_text("No webhook is declared.")).to_be_visible()
        await flawless(page)
        await page.get_by_text("New webhook").click()
        await page.get_by_label("URL").fill("ftp://nobody.example/")
        await page.get_by_role("button", name="Make it").click()
        await expect(page.get_by_role("alert")).to_contain_text("answered 422")
        await page.get_by_label("URL").fill(there.receiver.url)
        await page.get_by_role("button", name="Make it").click()
        dialog = page.get_by_role("dialog", name="The secret of the new webhook")
        await expect(dialog.get_by_role("region", name="The secret")).to_have_text(SECRET)
        await flawless(page)
        secret = await dialog.get_by_role("region", name="The secret").inner_text()
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_visible()
        await dialog.get_by_role("button", name="I have it").click()
        await expect(dialog).to_have_count(0)
        await expect(page.get_by_text("1 webhook shown")).to_be_visible()
        await expect(page.get_by_text(secret)).to_have_count(0)
        kept = await page.evaluate("() => JSON.stringify({...localStorage, ...sessionStorage})")
        assert secret not in f"{await page.content()}{kept}{page.url}"


async def test_deliveries_say_how_they_went_and_are_sent_once_more(there: Told, open_page: OpenPage) -> None:
    hook = await there.create()
    await there.refused(hook)
    async with open_page(there.site.page(f"webhooks/{hook['id']}")) as page:
        given_up = page.locator("summary").filter(has_text="given up")
        await expect(given_up).to_contain_text("answered 410")
        await page.get_by_label("Outcome").select_option("delivered")
        await expect(page.get_by_text("No delivery stands so.")).to_be_visible()
        await page.get_by_label("Outcome").select_option("given_up")
        await expect(page).to_have_url(there.site.page(f"webhooks/{hook['id']}?outcome=given_up"))
        await expect(page.get_by_role("button", name="Redeliver 1 …")).to_be_visible()
        await flawless(page)
        await page.get_by_label("Outcome").select_option("")
        there.receiver.answer = fine
        await given_up.click()
        await expect(page.get_by_role("region", name="Body")).to_contain_text('"command.succeeded"')
        await expect(page.get_by_role("link", name="Its command")).to_be_visible()
        await asked_again(page, "Enable …", "Enable it")
        await expect(page.get_by_role("button", name="Disable …")).to_be_visible()
        await asked_again(page, "Redeliver …", "Deliver it again")
        await page.get_by_role("button", name="Read again").click()
        await expect(page.locator("summary").filter(has_text="delivered")).to_be_visible()


async def test_what_changes_a_webhook_is_asked_again_and_then_done(there: Told, open_page: OpenPage) -> None:
    hook = await there.create()
    there.receiver.answer = fine
    async with open_page(there.site.page(f"webhooks/{hook['id']}")) as page:
        await page.get_by_role("button", name="Test").click()
        await expect(page.get_by_text("The test was delivered: answered 204.")).to_be_visible()
        await asked_again(page, "Disable …", "Disable it")
        await expect(page.get_by_role("button", name="Enable …")).to_be_visible()
        await asked_again(page, "New secret …", "Replace it")
        await expect(page.get_by_role("dialog", name="The new secret")).to_contain_text(SECRET)
    async with open_page(there.site.page(f"webhooks/{hook['id']}")) as page:
        await asked_again(page, "Delete …", "Delete it")
        await expect(page.get_by_role("heading", name="Webhooks")).to_be_focused()
        await page.goto(there.site.page(f"webhooks/{hook['id']}"))
        await expect(page.get_by_role("alert")).to_contain_text("answered 404")


async def test_no_text_of_a_webhook_becomes_anything_else(there: Told, open_page: OpenPage) -> None:
    hook = await there.create()
    texts = {"url": TEXTS[0], "devices": TEXTS[1], "methods": TEXTS[2], "tenant": TEXTS[3], "disabled_reason": TEXTS[4]}
    hooks = [{**hook, "id": f"wh_{at}", **dict.fromkeys(texts, text)} for at, text in enumerate(TEXTS)]
    instant = hook["created_at"]
    delivery = {"progress": "given_up", "attempts": 2, "status": 500, "created_at": instant, "attempted_at": instant}
    told = [
        {**delivery, "event_id": f"evt_{at}", "type": text, "reason": text, "next_at": None, "body": {text: text}}
        for at, text in enumerate(TEXTS)
    ]
    async with open_page(there.site.page()) as page:
        await answers(page, "**/v1/webhooks?*", {"webhooks": hooks, "cursor": None})
        await page.goto(there.site.page("webhooks"))
        await expect(page.get_by_text(f"{len(TEXTS)} webhooks shown")).to_be_visible()
        await harmless(page)
        await answers(page, "**/v1/webhooks/wh_1", {**hooks[1], "enabled": False, "disabled_at": instant, **texts})
        await answers(page, "**/wh_1/deliveries?*", {"waiting": 0, "deliveries": told, "cursor": None})
        await page.goto(there.site.page("webhooks/wh_1"))
        await expect(page.get_by_text(f"{len(TEXTS)} deliveries shown")).to_be_visible()
        for summary in (await page.locator("summary").all())[::7]:
            await summary.click()
        await harmless(page)


@IN_EVERY_LOOK
async def test_pages_of_webhooks_are_accessible_and_fit(
    there: Told, open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    hook = await there.create()
    await there.refused(hook)
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    async with open_page(there.site.page("webhooks"), **options) as page:
        await expect(page.get_by_text("webhooks shown").or_(page.get_by_text("webhook shown"))).to_be_visible()
        await page.get_by_text("New webhook").click()
        await flawless(page)
        await page.screenshot(path=tmp_path / f"webhooks-{theme}-{width}.png", full_page=True)
        await page.goto(there.site.page(f"webhooks/{hook['id']}"))
        await page.locator("summary").first.click()
        await expect(page.get_by_role("region", name="Body")).to_be_visible()
        await flawless(page)
        await page.screenshot(path=tmp_path / f"webhook-{theme}-{width}.png", full_page=True)
