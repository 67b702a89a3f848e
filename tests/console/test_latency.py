"""The page of latencies: what each method takes, beside its timeout."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.console.conftest import OpenPage
from tests.console.site import Site, site
from tests.console.test_hostile import TEXTS
from tests.console.test_looks import SIZES, flawless
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site() as one:
        yield one


def command(number: int, method: str, took: float, state: str = "succeeded") -> dict[str, Any]:
    """One of a page: it took so many seconds of at most ten."""
    at = "2026-11-21T10:00:{:06.3f}Z"
    ends = {"created_at": at.format(0), "finished_at": at.format(took), "deadline": at.format(10)}
    return {"id": str(number), "profile": "dji", "method": method, "state": state, **ends}


async def test_methods_are_listed_by_what_they_take_the_slowest_first(there: Site, open_page: OpenPage) -> None:
    quick = [command(n, "cover_open", n / 1000) for n in range(1, 101)]
    slow = [command(200, "return_home", 10, "timed_out"), command(201, "return_home", 2)]
    pages = {"": {"commands": quick, "cursor": "more"}, "more": {"commands": slow, "cursor": None}}
    async with open_page(there.page("latency")) as page:
        await expect(page.get_by_text("No command that you may read has ended")).to_be_visible()
        await flawless(page)
        await page.route(
            "**/v1/commands?*",
            lambda route: route.fulfill(body=json.dumps(pages["more" if "cursor=more" in route.request.url else ""])),
        )
        await page.get_by_role("button", name="Read again").click()
        rows = page.get_by_role("row").filter(has_text="dji:")
        await expect(rows.nth(0).get_by_role("cell")).to_have_text(
            ["dji:return_home", "2 ended", "p50 2.0 s", "p95 10 s", "p99 10 s", "timeout 10 s", "1 timed out", ""]
        )
        await expect(rows.nth(1).get_by_role("cell")).to_have_text(
            ["dji:cover_open", "100 ended", "p50 50 ms", "p95 95 ms", "p99 99 ms", "timeout 10 s", "0 timed out", ""]
        )
        await expect(page.get_by_text("Of the latest 102 commands")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
async def test_the_page_is_accessible_fits_and_takes_texts_as_they_are(
    there: Site, open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    body = json.dumps({"commands": [command(n, text, 1) for n, text in enumerate(TEXTS)], "cursor": None})
    for method in ("ok", "refuse", "ok"):
        await there.ended(method)
    async with open_page(there.page("latency"), **options) as page:
        await expect(page.get_by_role("row").filter(has_text="homing:ok")).to_be_visible()
        await flawless(page)
        await page.screenshot(path=tmp_path / f"latency-{theme}-{width}.png", full_page=True)
        await page.route("**/v1/commands?*", lambda route: route.fulfill(body=body))
        await page.get_by_role("button", name="Read again").click()
        await expect(page.get_by_text("⟨U+202E⟩turned").first).to_be_visible()
        await expect(page.locator("tbody script, tbody img, tbody b")).to_have_count(0)
        await flawless(page)
