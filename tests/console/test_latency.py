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
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site() as one:
        yield one


def of_method(method: str, p50: int | None, late: int = 0) -> dict[str, Any]:
    """A method of an overview: a hundred have ended."""
    times = {"p50_ms": p50, "p95_ms": p50, "p99_ms": p50}
    return {
        "profile": "dji",
        "method": method,
        "timeout_ms": 10_000,
        "ended": {"timed_out": late, "failed": 100},
        **times,
    }


def overview(*methods: dict[str, Any]) -> dict[str, Any]:
    """As much of one as the page reads."""
    numbers = {"begun": 1204, "ended": {"succeeded": 1190, "failed": 3, "cancelled": 9}, "p99_ms": 1800}
    hour = {"total": numbers, "minutes": [{"at": "2026-11-21T10:00:00Z", **numbers}], "methods": methods}
    return {"at": "2026-11-21T10:00:40Z", "last_hour": hour}


async def test_methods_are_listed_by_what_they_take_the_slowest_first(there: Site, open_page: OpenPage) -> None:
    said: list[dict[str, Any]] = [
        overview(of_method("cover_open", 50), of_method("return_home", 2000, 1), of_method("land", None)),
        {"at": "2026-11-21T10:00:40Z", "last_hour": None},
    ]
    async with open_page(there.page("latency")) as page:
        await expect(page.get_by_text("No command has ended within the last hour")).to_be_visible()
        await flawless(page)
        await page.route("**/v1/overview", lambda route: route.fulfill(body=json.dumps(said.pop(0))))
        await page.get_by_role("button", name="Read again").click()
        rows = page.get_by_role("row").filter(has_text="dji:")
        await expect(rows.nth(0).get_by_role("cell")).to_have_text(
            ["dji:return_home", "101 ended", "p50 2.0 s", "p95 2.0 s", "p99 2.0 s", "timeout 10 s", "1 timed out"]
        )
        await expect(rows.nth(1)).to_contain_text("dji:cover_open")
        await expect(rows.nth(2).get_by_role("cell")).to_have_text(
            ["dji:land", "100 ended", "p50 –", "p95 –", "p99 –", "timeout 10 s", "0 timed out"]
        )
        hour = page.get_by_role("region", name="Commands of the last hour")
        await expect(hour.get_by_role("definition")).to_have_text(["1,204", "3", "1.8 s"])
        await page.get_by_role("button", name="Read again").click()
        await expect(page.get_by_role("status").filter(has_text="need the metrics right")).to_be_visible()


async def test_each_minute_has_its_place_in_a_line(there: Site, open_page: OpenPage) -> None:
    minutes = [{"at": "2026-11-21T09:01:00Z", "begun": 7}, {"at": "2026-11-21T10:00:00Z", "begun": 5}]
    script = """async (minutes) => {
        const at = new URL(document.querySelector("link[rel=modulepreload]").href);
        const { lineOf } = await import(new URL("parts.js", at).href);
        return lineOf(minutes, Date.parse("2026-11-21T10:00:40Z"), (one) => one.begun);
    }"""
    async with open_page(there.page("latency")) as page:
        line = await page.evaluate(script, minutes)
    assert (len(line), line[0], line[-1], sum(line)) == (60, 7, 5, 12)


@IN_EVERY_LOOK
async def test_the_page_is_accessible_fits_and_takes_texts_as_they_are(
    there: Site, open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    body = json.dumps(overview(*(of_method(text, 1) for text in dict.fromkeys(TEXTS))))
    for method in ("ok", "refuse", "ok"):
        await there.ended(method)

    async def are_told() -> bool:  # an overview may be two seconds old
        return bool((await there.rig.http.get("/v1/overview")).json()["last_hour"]["methods"])

    await eventually(are_told)
    async with open_page(there.page("latency"), **options) as page:
        await expect(page.get_by_role("row").filter(has_text="homing:ok")).to_be_visible()
        await flawless(page)
        await page.screenshot(path=tmp_path / f"latency-{theme}-{width}.png", full_page=True)
        await page.route("**/v1/overview", lambda route: route.fulfill(body=body))
        await page.get_by_role("button", name="Read again").click()
        await expect(page.get_by_text("⟨U+202E⟩turned").first).to_be_visible()
        await expect(page.locator("tbody script, tbody img, tbody b")).to_have_count(0)
        await flawless(page)
