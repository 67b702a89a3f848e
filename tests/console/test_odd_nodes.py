"""Nodes that answer otherwise than the page expects: of another version, with another clock, or not at all."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, time
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from app.runtime.system import SystemClock
from tests.console.conftest import OpenPage
from tests.console.site import Site, answers, furnished, looks, site
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

OVERVIEW = "**/v1/overview"
EVERY_MS = 10_000
"""After so long a page looks again by itself."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site() as one:
        await furnished(one)
        yield one


async def read(there: Site) -> dict[str, Any]:
    return dict((await there.rig.http.get("/v1/overview")).json())


def without(value: Any, names: set[str]) -> Any:  # noqa: ANN401 - JSON
    """The value without members of these names, wherever they are."""
    if isinstance(value, dict):
        return {name: without(one, names) for name, one in value.items() if name not in names}
    return [without(one, names) for one in value] if isinstance(value, list) else value


async def look_again(page: Page) -> None:
    """Have the page look at once, and not some seconds later."""
    await page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")


async def test_what_an_older_node_does_not_say_is_unknown(there: Site, open_page: OpenPage) -> None:
    names = {"checks", "devices", "begun", "ended", "fullest", "version", "since", "deaths", "home_node"}
    async with open_page(there.page("nowhere")) as page:
        await looks(page)
        await answers(page, OVERVIEW, without(await read(there), names))
        await page.goto(there.page())
        await expect(page.get_by_text("? devices").first).to_be_visible()
        await expect(page.get_by_role("heading", name="Open now")).to_be_visible()
        await page.goto(there.page("nodes"))
        await expect(page.get_by_role("article", name="Node node-a")).to_be_visible()


async def test_what_cannot_be_shown_is_said_and_the_menu_stays(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("nowhere")) as page:
        await looks(page)
        await page.goto(there.page())
        await expect(page.get_by_text("read every 6 s")).to_be_visible()
        await answers(page, OVERVIEW, without(await read(there), {"trouble", "newest"}))
        await look_again(page)
        await expect(page.get_by_role("alert")).to_contain_text("may be of another version")
        await page.get_by_role("link", name="Commands", exact=True).click()
        await expect(page.get_by_text("4 commands shown")).to_be_visible()
        await page.unroute(OVERVIEW)
        await page.get_by_role("link", name="Home", exact=True).click()
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()


def hour_now() -> int:
    return datetime.fromtimestamp(SystemClock().wall(), UTC).astimezone().hour


@pytest.mark.parametrize("hours", [1, -1])
async def test_ages_go_by_the_clock_of_the_node(there: Site, open_page: OpenPage, hours: int) -> None:
    before = hour_now()
    async with open_page(there.page("nowhere")) as page:
        await page.clock.set_system_time(SystemClock().wall() + 3600 * hours)
        await page.goto(there.page())
        age = page.locator(".open time").first
        await expect(age).to_have_text(re.compile(r"^\d+(\.\d)? s$|^\d min$"))
        await expect(page.get_by_text("clock of this machine differs")).to_be_visible()
        shown = await page.get_by_text(re.compile("^Shown: ")).inner_text()
        read_at = time.fromisoformat(shown.removeprefix("Shown: ").partition(",")[0])
        assert read_at.hour in {before, hour_now()}


async def test_what_looks_by_itself_waits_for_the_answer_that_is_under_way(there: Site, open_page: OpenPage) -> None:
    asked: list[Route] = []

    def leave(route: Route) -> None:
        asked.append(route)

    async with open_page(there.page("nowhere")) as page:
        await page.clock.install()
        await page.evaluate("() => { AbortSignal.timeout = () => new AbortController().signal; }")  # it is patient
        await page.route("**/v1/commands?state=held*", leave)
        await page.goto(there.page("held"))
        await eventually(lambda: bool(asked))
        for _ in range(2):
            await page.clock.fast_forward(EVERY_MS)
        await asked[0].continue_()
        await expect(page.get_by_text("Nothing is held")).to_be_visible()
        assert len(asked) == 1


async def away(route: Route) -> None:
    """Answer as a node does whose store is away."""
    await route.fulfill(status=503, body='{"title": "The store is away", "detail": "ask again"}')


@pytest.mark.parametrize(
    ("route", "path", "shown"),
    [("commands", "**/v1/commands?*", "4 commands shown"), ("latency", OVERVIEW, "Of the hour before")],
)
async def test_a_list_that_a_node_refuses_for_a_moment_comes_by_itself(
    there: Site, open_page: OpenPage, route: str, path: str, shown: str
) -> None:
    async with open_page(there.page("nowhere")) as page:
        await page.clock.install()
        await page.route(path, away)
        await page.goto(there.page(route))
        await expect(page.get_by_role("alert")).to_contain_text("The store is away")
        await page.unroute(path)
        await page.clock.fast_forward(EVERY_MS)
        await expect(page.get_by_text(shown)).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_the_end_of_a_command_comes_by_itself_where_its_explanation_was_refused(
    there: Site, open_page: OpenPage
) -> None:
    command = await there.send("fly")
    async with open_page(there.page("nowhere")) as page:
        await page.clock.install()
        await page.goto(there.page(f"commands/{command}"))
        await expect(page.get_by_text("left to its deadline")).to_be_visible()
        await page.route("**/explain", away)
        await there.answer(command, '"status":"ok"')
        await page.clock.fast_forward(EVERY_MS)
        await expect(page.get_by_role("alert")).to_contain_text("The store is away")
        await page.unroute("**/explain")
        await page.clock.fast_forward(EVERY_MS)
        await expect(page.get_by_text("It has succeeded.")).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.long  # the page waits for 15 seconds
async def test_a_node_that_hangs_leaves_what_it_said_with_its_age(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("nowhere")) as page:
        await looks(page)
        await page.goto(there.page())
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await page.route(OVERVIEW, lambda _: None)
        await look_again(page)
        await expect(page.get_by_role("alert")).to_contain_text("no answer within 15 s")
        await expect(page.get_by_role("alert")).to_contain_text("Shown is the state of")
        await page.unroute(OVERVIEW)
        await page.get_by_role("button", name="Try again").click()
        await expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.long  # the page waits for 12 seconds
async def test_a_stream_that_is_silent_is_told_as_a_node_that_does_not_answer(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("nowhere")) as page:
        for path in (OVERVIEW, "**/v1/overview/events"):
            await page.route(path, lambda _: None)
        await page.goto(there.page())
        await expect(page.get_by_role("alert")).to_contain_text("no answer within 12 s")
        await page.unroute("**/v1/overview/events")
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)
