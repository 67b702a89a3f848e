"""The pages of queues: how they stand, what is asked before it is done, and who sees which button."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Route, expect

from app.core.access.changes import Put
from app.core.access.model import Role
from tests.console.conftest import OpenPage
from tests.console.site import (
    EVENTS,
    Site,
    asked_again,
    bury,
    declare,
    furnished_queues,
    has_events,
    publish,
    site,
    take,
)
from tests.console.test_hostile import TEXTS, harmless
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.console.test_sessions import guarded_site, log_in
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

CHANGES: Final = ("Redrive …", "Rewind …", "Purge …")
LETTERS: Final = 20
"""On a page, as app/console/pages/queue.js has it."""
LARGEST: Final = "x" * (128 * 1024 - 2)


@pytest_asyncio.fixture(loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site(events=EVENTS) as one:
        await has_events(one)
        yield one


async def ready(there: Site, name: str = "alarms") -> int:
    found = (await there.rig.http.get(f"/v1/queues/{name}")).json()["counts"]
    return int(found["ready"])


async def test_the_list_shows_how_each_queue_stands_and_keys_lead_to_one(there: Site, open_page: OpenPage) -> None:
    await furnished_queues(there)
    await eventually(lambda: ready_is(there, "archive", 5))
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("link", name="Queues")).to_be_visible()
        await page.keyboard.type("gq")
        await expect(page.get_by_role("heading", name="Queues")).to_be_focused()
        at_work = page.get_by_role("row").filter(has_text="alarms")
        await expect(at_work.get_by_role("cell")).to_have_text(
            [
                "alarms",
                "◔at work",
                "0 waiting",
                "4 lent",
                "0 later",
                "1 dead",
                "",
                re.compile("consumer"),
            ]
        )
        left = page.get_by_role("row").filter(has_text="archive")
        await expect(left).to_contain_text("nobody takes")
        await expect(left.get_by_role("cell").nth(6)).to_contain_text("oldest ")
        await expect(page.get_by_role("row").filter(has_text="nobody/speaks")).to_have_count(0)
        await expect(page.get_by_role("row").filter(has_text="quiet")).to_contain_text("✔quiet")
        await expect(page.get_by_text("3 queues shown")).to_be_visible()
        await publish(there, 1)
        await page.get_by_role("button", name="Read again").click()
        await expect(at_work).to_contain_text("1 waiting")
        await page.keyboard.press("j")
        await expect(page.get_by_role("link", name="alarms")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="alarms")).to_be_focused()


async def ready_is(there: Site, name: str, count: int) -> bool:
    return await ready(there, name) == count


async def test_a_queue_shows_routes_consumers_and_dead_letters(there: Site, open_page: OpenPage) -> None:
    await furnished_queues(there)
    async with open_page(there.page("queues/alarms")) as page:
        await expect(page.get_by_text("site/+/alarm")).to_be_visible()
        await expect(page.get_by_text("team=ground")).to_be_visible()
        await publish(there, 1)
        await take(there, 1, "worker-7")
        await page.get_by_role("button", name="Read again").click()
        await expect(page.get_by_role("listitem").filter(has_text="worker-7")).to_contain_text("ago")
        await page.locator("summary").filter(has_text="no such dock").click()
        await expect(page.get_by_text("1 delivery, the last one to w1")).to_be_visible()
        await expect(page.get_by_role("region", name="Event")).to_contain_text('"too hot"')
        await page.get_by_label("Show").select_option("-1h")
        await expect(page.get_by_text("1 letter shown")).to_be_visible()


async def test_what_changes_a_queue_is_asked_again_and_then_done(there: Site, open_page: OpenPage) -> None:
    await declare(there, retry=["0s"])
    await publish(there, "poison")
    await bury(there, ["bad"])
    async with open_page(there.page("queues/alarms")) as page:
        await asked_again(page, "Redrive …", "Deliver them again")
        await expect(page.get_by_text("The dead letters are in the queue again.")).to_be_visible()
        await eventually(lambda: ready_is(there, "alarms", 1))
        await asked_again(page, "Purge …", "Empty it")
        await expect(page.get_by_text("Nothing waits in the queue any more.")).to_be_visible()
        await eventually(lambda: ready_is(there, "alarms", 0))
        await asked_again(page, "Rewind …", "Rewind it")
        await expect(page.get_by_text("The queue goes on at -10m.")).to_be_visible()
        await eventually(lambda: ready_is(there, "alarms", 1))


async def test_a_place_to_rewind_to_that_is_none_is_said_where_it_was_typed(there: Site, open_page: OpenPage) -> None:
    await declare(there)
    async with open_page(there.page("queues/alarms")) as page:
        await page.get_by_role("button", name="Rewind …").click()
        await page.get_by_label("Go on at").fill("yesterday")
        await page.get_by_role("button", name="Rewind it").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("yesterday")
        await flawless(page)


def answering(body: str) -> Callable[[Route], Awaitable[None]]:
    """Answer a request with 503 and this body."""

    async def answer(route: Route) -> None:
        await route.fulfill(status=503, body=body)

    return answer


async def test_pages_without_queues_say_why(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("queues")) as page:
        await expect(page.get_by_text("No queue is declared.")).to_be_visible()
        await flawless(page)
        await page.get_by_label("Queue", exact=True).fill("nothing")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("nothing")
        for body in ('{"title": "The store is away", "detail": "<img src=x onerror=alert(1)>"}', "no JSON"):
            await page.route("**/v1/queues?*", answering(body))
            await page.goto(there.page("queues"))
            await expect(page.get_by_role("alert")).to_contain_text("answered 503")
            await harmless(page)
            await page.unroute("**/v1/queues?*")
            await page.get_by_role("button", name="Try again").click()
            await expect(page.get_by_text("No queue is declared.")).to_be_visible()
            await page.goto(there.page())


async def test_a_list_that_is_on_its_way_keeps_its_place(there: Site, open_page: OpenPage) -> None:
    await declare(there)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    async with open_page(there.page()) as page:
        await page.route("**/v1/queues?*", hold)
        await page.goto(there.page("queues"))
        await expect(page.get_by_label("Loading")).to_be_visible()
        await eventually(lambda: bool(held))
        for route in held:
            await route.continue_()
        await expect(page.get_by_text("1 queue shown")).to_be_visible()


async def test_a_node_without_queues_has_no_such_entry_and_says_what_it_needs(open_page: OpenPage) -> None:
    async with site() as plain, open_page(plain.page()) as page:
        await expect(page.get_by_text("This node asks nobody who they are.")).to_be_visible()
        await expect(page.get_by_role("link", name="Queues")).to_have_count(0)
        for route in ("queues", "queues/alarms"):
            await page.goto(plain.page(route))
            await expect(page.get_by_text("HOMING_EVENTS_URL")).to_be_visible()


async def test_no_text_of_a_queue_becomes_anything_else(there: Site, open_page: OpenPage) -> None:
    levels = [one.replace("+", "").replace("#", "").replace("/", "")[:200] for one in TEXTS]
    topics = [f"site/{one}/alarm" for one in levels if one.isprintable()]
    labels = {f"text-{number}": text[:100] for number, text in enumerate(TEXTS)}
    routes = [{"database": "events", "topic": one} for one in ["site/+/alarm", *topics][:64]]
    await declare(there, routes=routes, labels=dict(list(labels.items())[:16]))
    for topic in topics:
        await publish(there, list(TEXTS), topic=topic)
    await bury(there, [text[:512] for text in TEXTS[: len(topics)]], "<b>'\"&")
    await publish(there, LARGEST)
    await bury(there, ["large"])
    consumers = json.dumps({"consumers": [{"consumer": text, "asked_at": "2026-11-21T10:00:00Z"} for text in TEXTS]})
    async with open_page(there.page()) as page:
        await page.route("**/consumers", lambda route: route.fulfill(body=consumers, content_type="application/json"))
        await page.goto(there.page("queues/alarms"))
        await expect(page.get_by_role("listitem").filter(has_text=TEXTS[0]).last).to_be_visible()
        await expect(page.get_by_text("<svg onload=alert(1)>").first).to_be_visible()
        await harmless(page)
        letters = len(topics) + 1
        for shown in range(LETTERS, letters, LETTERS):
            await expect(page.get_by_text(f"{shown} letters shown")).to_be_visible()
            await page.get_by_role("button", name="More").click()
        await expect(page.get_by_text(f"{letters} letters shown")).to_be_visible()
        for summary in (await page.locator("summary").all())[:-1:6]:
            await summary.click()
        await page.locator("summary").last.click()
        await page.get_by_role("button", name="Show all 131,072 bytes").click()
        await harmless(page)
        for text in TEXTS:
            await page.goto(there.page(f"queues/{quote(text[:200], safe='')}"))
            await expect(page.get_by_role("alert")).to_be_visible()
            await harmless(page)


@IN_EVERY_LOOK
async def test_pages_of_queues_are_accessible_and_fit(
    there: Site, open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    await furnished_queues(there)
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    async with open_page(there.page("queues"), **options) as page:
        await expect(page.get_by_text("at work")).to_be_visible()
        await flawless(page)
        await page.screenshot(path=tmp_path / f"queues-{theme}-{width}.png", full_page=True)
        await page.goto(there.page("queues/alarms"))
        await page.locator("summary").first.click()
        await expect(page.get_by_role("region", name="Event")).to_be_visible()
        await flawless(page)
        await page.screenshot(path=tmp_path / f"queue-{theme}-{width}.png", full_page=True)
        for name in CHANGES:
            await page.get_by_role("button", name=name).click()
            await expect(page.get_by_role("dialog")).to_be_visible()
            await flawless(page)
            await page.screenshot(path=tmp_path / f"queue-{name.split()[0].lower()}-{theme}-{width}.png")
            await page.keyboard.press("Escape")


async def test_buttons_are_there_for_those_who_may(tmp_path: Path, open_page: OpenPage) -> None:
    async with guarded_site(tmp_path, events=EVENTS) as (there, people):
        routes = [{"database": "events", "topic": "homing/+/event"}]

        async def declared() -> bool:
            put = await people.rig.http.put(
                "/v1/queues/alarms", json={"routes": routes}, headers=people.headers("admin")
            )
            return put.is_success

        await eventually(declared)
        await people.change(Put(Role(name="none", tenant_id="air", rules=("allow read *:* on *",))))
        await people.add("stranger", "none")
        for who, expected in (("admin", 1), ("operator", 0)):
            async with open_page(there.page("queues/alarms")) as page:
                await log_in(page, people.keys[who].text)
                await expect(page.get_by_role("heading", name="How it stands")).to_be_visible()
                for name in CHANGES:
                    await expect(page.get_by_role("button", name=name)).to_have_count(expected)
                await page.goto(there.page("queues"))
                shown = page.get_by_text("1 queue shown") if expected else page.get_by_text("needs the queues right")
                await expect(shown).to_be_visible()
                await flawless(page)
        async with open_page(there.page("queues/alarms")) as page:
            await log_in(page, people.keys["stranger"].text)
            await expect(page.get_by_role("alert")).to_contain_text("answered 403")
            await flawless(page)
