"""The looks of the pages: axe at zero in both themes, on a desktop and a phone; nothing sticks out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.console.conftest import OpenPage
from tests.console.site import Site, furnished, site
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

AXE = (Path(__file__).parent / "axe.min.js").read_text("utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LOOKS = 100
AGAIN_SECONDS = 0.1
SIZES = {"desktop": (1280, 800), "phone": (360, 740)}
IN_EVERY_LOOK = pytest.mark.parametrize(
    ("size", "theme"),
    [
        ("desktop", "light"),
        ("phone", "dark"),
        pytest.param("desktop", "dark", marks=pytest.mark.long),
        pytest.param("phone", "light", marks=pytest.mark.long),
    ],
)
VIOLATIONS = """async (tags) => {
    const found = await axe.run(document, {runOnly: {type: "tag", values: tags}});
    return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" | ")}`);
}"""
STICKING_OUT = """() => [...document.querySelectorAll("body *")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && box.right > innerWidth + 1 && getComputedStyle(one).clipPath === "none";
}).map((one) => one.outerHTML.slice(0, 200))"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def furniture() -> AsyncIterator[tuple[Site, dict[str, str]]]:
    async with site() as there:
        nightly = {"cron": "0 3 1 1 *", "device": "dock-1", "command": {"method": "cover_close"}}
        assert (await there.rig.http.put("/v1/schedules/nightly", json=nightly)).status_code == 201
        yield there, await furnished(there)


async def flawless(page: Page) -> None:
    if not await page.evaluate("() => 'axe' in globalThis"):  # it outlives routes, and takes long to parse
        await page.evaluate(AXE)
    for _ in range(LOOKS):  # a page that was asked for just now may still be the one before, or half of both
        if not await flaws(page):
            return
        await asyncio.sleep(AGAIN_SECONDS)
    assert await flaws(page) == []


async def flaws(page: Page) -> list[str]:
    found: list[str] = await page.evaluate(VIOLATIONS, RULES)
    return [*found, *await page.evaluate(STICKING_OUT)]


@IN_EVERY_LOOK
async def test_every_page_is_accessible_and_fits(
    furniture: tuple[Site, dict[str, str]], open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    there, made = furniture
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    async with open_page(there.page(), **options) as page:
        for name, route, settled in (
            ("home", "", page.get_by_role("heading", name="Open now")),
            ("commands", "commands", page.get_by_text("4 commands shown")),
            ("silent", f"commands/{made['silent']}", page.get_by_role("heading", name="What happened")),
            ("open", f"commands/{made['open']}", page.get_by_role("button", name="Cancel …")),
            ("unknown", "commands/nothing", page.get_by_role("alert")),
            ("nodes", "nodes", page.get_by_role("article", name="Node node-a")),
            ("devices", "devices", page.get_by_text("1 device shown")),
            ("device", "devices/drone-1", page.get_by_role("heading", name="Last values")),
            ("send", "devices/dock-1/send?profile=dji", page.get_by_role("button", name="Send", exact=True)),
            ("schedules", "schedules", page.get_by_text("1 schedule shown")),
            ("try", "try", page.get_by_role("button", name="Read it")),
            ("nowhere", "nowhere", page.get_by_role("heading", name="There is no such page")),
        ):
            await page.goto(there.page(route))
            await expect(settled).to_be_visible()
            if name == "schedules":
                await page.locator("summary").first.click()
            await flawless(page)
            await page.screenshot(path=tmp_path / f"{name}-{theme}-{width}.png", full_page=True)
        await page.get_by_role("button", name="Keys").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await flawless(page)


async def test_a_dialog_of_a_command_is_accessible_also_with_forced_colours(
    furniture: tuple[Site, dict[str, str]], open_page: OpenPage
) -> None:
    there, made = furniture
    async with open_page(there.page(f"commands/{made['open']}"), forced_colors="active") as page:
        await page.get_by_role("button", name="Cancel …").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await flawless(page)


async def test_an_image_without_a_text_would_be_found(
    furniture: tuple[Site, dict[str, str]], open_page: OpenPage
) -> None:
    there, _ = furniture
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await page.evaluate("() => document.querySelector('main').append(document.createElement('img'))")
        await page.evaluate(AXE)
        assert "image-alt" in [one.partition(":")[0] for one in await page.evaluate(VIOLATIONS, RULES)]
