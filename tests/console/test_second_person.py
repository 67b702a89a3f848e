"""A second person decides about a command in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from app.core.access.changes import Put
from app.core.access.model import Role
from tests.api.test_access import Site as Guarded
from tests.api.test_two_persons import RULE, person, proposal
from tests.console.conftest import OpenPage
from tests.console.site import Site, answers
from tests.console.test_hostile import TEXTS, harmless
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.console.test_sessions import guarded_site, log_in
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Site, Guarded]]:
    folder: Path = tmp_path_factory.mktemp("second")
    async with guarded_site(folder) as (site, people):
        await people.change(Put(Role(name="careful", tenant_id="air", rules=(RULE,))))
        await person(people, "anna", "operator", "careful", "approver")
        await person(people, "ben", "approver")
        yield site, people


async def decide(page: Page, word: str, note: str) -> None:
    await page.get_by_role("button", name=f"{word} …").click()
    await expect(page.get_by_role("region", name="The command")).to_contain_text('"height": 30')
    await expect(page.get_by_role("region", name="The request")).to_contain_text(f"homing held {word.lower()} ")
    await page.get_by_label("Note").fill(note)
    await flawless(page)
    await page.get_by_role("button", name=f"{word} it").click()


async def test_whoever_has_asked_does_not_decide_and_another_person_approves(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, people = there
    command = await proposal(people, params={"height": 30, "texts": list(TEXTS)})
    async with open_page(site.page(f"commands/{command['id']}")) as page:
        await log_in(page, people.keys["anna"].text)
        second = page.get_by_role("region", name="Second person")
        await expect(second).to_contain_text("you have asked for it yourself")
        await expect(second.get_by_role("button")).to_have_count(0)
        await harmless(page)
    async with open_page(site.page(f"commands/{command['id']}"), viewport={"width": 360, "height": 740}) as page:
        await log_in(page, people.keys["ben"].text)
        await decide(page, "Approve", "seen on site")
        await expect(page.get_by_text("succeeded", exact=True)).to_be_visible()
        await expect(page.get_by_role("region", name="Second person")).to_have_count(0)
        await harmless(page)


@IN_EVERY_LOOK
async def test_what_waits_for_somebody_is_on_their_home(
    there: tuple[Site, Guarded], open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    site, people = there
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    await proposal(people, params={"height": 30})
    listed = (await people.rig.http.get("/v1/approvals", headers=people.headers("ben"))).json()
    (one,) = listed["approvals"]
    attacks = [
        {**one, "asked_by": text, "command": {**one["command"], "id": f"{at}", "device_id": text, "method": text}}
        for at, text in enumerate(TEXTS)
    ]
    waiting = "Waiting for you"
    async with open_page(site.page()) as page:
        async with page.expect_response("**/v1/approvals"):
            await log_in(page, people.keys["anna"].text)
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await expect(page.get_by_role("heading", name=waiting)).to_have_count(0)
    async with open_page(site.page(), **options) as page:
        await flawless(page)
        await page.screenshot(path=tmp_path / f"login-{theme}-{width}.png", full_page=True, caret="initial")
        await log_in(page, people.keys["ben"].text)
        await expect(page.get_by_role("heading", name=f"{waiting} 1")).to_be_visible()
        await flawless(page)
        await page.screenshot(path=tmp_path / f"waiting-{theme}-{width}.png", full_page=True, caret="initial")
        await page.goto(site.page("nodes"))
        await answers(page, "**/v1/approvals", {**listed, "approvals": attacks})
        await page.goto(site.page())
        await expect(page.get_by_role("heading", name=f"{waiting} {len(TEXTS)}")).to_be_visible()
        await harmless(page)
        await page.goto(site.page("nodes"))
        await page.unroute("**/v1/approvals")
        await page.goto(site.page())
        row = page.get_by_role("row").filter(has_text="asked by anna")
        await row.get_by_role("link").click()
        await expect(page.get_by_role("button", name="Refuse …")).to_be_visible()
        await page.screenshot(path=tmp_path / f"second-{theme}-{width}.png", full_page=True)
        await decide(page, "Refuse", "not today")
        await expect(page.get_by_text("cancelled", exact=True)).to_be_visible()
        async with page.expect_response("**/v1/approvals"):
            await page.get_by_role("link", name="Home", exact=True).click()
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await expect(page.get_by_role("heading", name=waiting)).to_have_count(0)


async def test_who_refuses_says_why_and_a_decision_that_is_over_is_told_in_the_dialog(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, people = there
    command = await proposal(people, params={"height": 30})
    async with open_page(site.page(f"commands/{command['id']}")) as page:
        await log_in(page, people.keys["ben"].text)
        await expect(page.get_by_role("button", name="Refuse …")).to_be_visible()
        await page.route("**/approvals", lambda route: route.fulfill(status=409, json={"title": "Over", "detail": "x"}))
        await decide(page, "Refuse", "there is a crane")
        await expect(page.get_by_role("alert")).to_contain_text("Over")
        await page.unroute("**/approvals")
        await page.get_by_role("button", name="Refuse it").click()
        await expect(page.get_by_text("cancelled", exact=True)).to_be_visible()
        await expect(page.get_by_text("there is a crane").first).to_be_visible()
    assert people.rig.device.received[1:] == [], "the first test has sent one"
