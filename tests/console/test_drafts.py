"""The page Try a profile: what is wrong with one that is typed, and what it makes of a command and of a message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from app.profiles.loader import shipped_file
from tests.console.conftest import OpenPage
from tests.console.site import Site, site
from tests.console.test_hostile import TEXTS, harmless
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

HOMING = shipped_file("homing")
assert HOMING is not None
TOML = HOMING.read_text("utf-8")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site() as one:
        yield one


@IN_EVERY_LOOK
async def test_a_typed_profile_is_tried(
    there: Site, open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme}
    async with open_page(there.page("profiles"), **options) as page:
        await page.get_by_role("link", name="Try a profile").click()
        await flawless(page)
        findings = page.get_by_role("status", name="Findings")
        await page.get_by_label("Profile, as TOML").fill(TOML.replace("qos = 1", "qos = 3"))
        await page.get_by_role("button", name="Try it").click()
        await expect(findings).to_contain_text("profile.toml:9: request.qos")
        await flawless(page)
        await page.get_by_label("Profile, as TOML").fill(TOML)
        await page.get_by_label("Method").fill("blink")
        await page.get_by_label("Params").fill('{"times": 9007199254740993}')
        await page.get_by_label("What the device says").fill('{"id": "{id}", "status": "ok"}')
        await page.keyboard.press("Tab")
        await expect(page.get_by_label("On topic")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(findings).to_contain_text("The message answers the command")
        await expect(findings).to_contain_text('"params":{"times":9007199254740993}')
        await flawless(page)
        await page.screenshot(path=tmp_path / f"draft-{theme}-{width}.png", full_page=True)
        assert "blink" not in page.url
        await page.get_by_label("Params").fill('{"times": ')
        await page.get_by_role("button", name="Try it").click()
        await expect(page.get_by_role("alert")).to_contain_text("The params are no JSON")


async def test_no_text_of_a_draft_becomes_anything_else(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("draft"), viewport={"width": 360, "height": 740}) as page:
        findings = page.get_by_role("status", name="Findings")
        await page.get_by_label("Profile, as TOML").fill(TOML)
        await page.get_by_label("What the device says").fill("\n".join(TEXTS))
        await page.get_by_label("Params").fill('["<img src=x onerror=alert(1)>"]')
        await page.get_by_role("button", name="Try it").click()
        await expect(findings).to_contain_text("does not answer the command")
        await expect(findings).to_contain_text("<img src=x onerror=alert(1)>")
        await harmless(page)
        for text in ("<script>alert(1)</script>", f'name = "<img src=x onerror=alert(1)>"\n[{TEXTS[0]!r}]\nx = 1'):
            await page.get_by_label("Profile, as TOML").fill(text)
            await page.get_by_role("button", name="Try it").click()
            await expect(findings).to_contain_text("It is no profile yet")
            await harmless(page)
