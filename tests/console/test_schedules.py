"""The page of schedules: what comes next, why one has paused itself, and deleting one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.console.conftest import OpenPage
from tests.console.site import Site, answers, asked_again, site
from tests.console.test_devices import refuse
from tests.console.test_hostile import SIDEWAYS, TEXTS, harmless
from tests.console.test_looks import flawless
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

ALL = "**/v1/schedules"
BODY: dict[str, Any] = {"cron": "0 3 1 1 *", "device": "dock-1", "command": {"method": "cover_close"}}


@pytest_asyncio.fixture(loop_scope="session")
async def there() -> AsyncIterator[Site]:
    """Two schedules that begin a command at New Year."""
    async with site() as one:
        for name in ("close-covers", "nightly"):
            assert (await one.rig.http.put(f"/v1/schedules/{name}", json=BODY)).status_code == 201
        yield one


async def test_what_comes_next_is_shown_and_a_schedule_deleted(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("fleets"), viewport={"width": 320, "height": 700}, color_scheme="dark") as page:
        await page.get_by_role("link", name="Schedules").click()
        await expect(page.get_by_text("2 schedules shown")).to_be_visible()
        await page.get_by_text("close-covers").click()
        await expect(page.get_by_role("listitem").filter(has_text="03:00:00")).to_have_count(10)
        await expect(page.get_by_role("region", name="Command")).to_contain_text("cover_close")
        await expect(page.get_by_text("Nothing was due yet.")).to_be_visible()
        assert not await page.evaluate(SIDEWAYS)
        await flawless(page)
        await asked_again(page, "Delete …", "Delete it")
        await expect(page.get_by_text("close-covers is deleted.")).to_be_visible()
        await expect(page.get_by_text("1 schedule shown")).to_be_visible()
    assert [one["name"] for one in (await there.rig.http.get("/v1/schedules")).json()["schedules"]] == ["nightly"]


async def test_nothing_is_hidden_that_went_wrong(there: Site, open_page: OpenPage) -> None:
    (one, *_) = (await there.rig.http.get("/v1/schedules")).json()["schedules"]
    said = {"at": one["next"][0], "noted_at": one["next"][0], "node": "node-a"}
    last = [
        {**said, "result": "refused", "began": None, "reason": "its writer may not send any more"},
        {**said, "at": one["next"][1], "result": "began", "began": "run-01J00000000000000000000001", "reason": None},
    ]
    paused = {**one, "paused": "its writer may not send any more", "next": [], "occurrences": last}
    async with open_page(there.page()) as page:
        await answers(page, ALL, {"schedules": [paused, {**one, "name": "off", "enabled": False, "next": []}]})
        await page.goto(there.page("schedules"))
        await page.locator("summary").filter(has_text="paused").click()
        await expect(page.get_by_text("Writing it again lets it go on.")).to_be_visible()
        await expect(page.get_by_text("not allowed")).to_be_visible()
        await expect(page.get_by_role("link", name="run-01J")).to_be_visible()
        await expect(page.locator("summary").filter(has_text="disabled")).to_be_visible()
        await flawless(page)
        for status, detail in ((403, "no rule of viewer allows it"), (503, "the store does not answer")):
            await page.unroute_all()
            await page.route(ALL, partial(refuse, status, detail))
            await page.goto(there.page())
            await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
            await page.goto(there.page("schedules"))
            await expect(page.get_by_text(detail)).to_be_visible()
            await flawless(page)


async def test_no_text_of_a_schedule_becomes_anything_else(there: Site, open_page: OpenPage) -> None:
    (one, *_) = (await there.rig.http.get("/v1/schedules")).json()["schedules"]
    occurrence = {"at": one["next"][0], "noted_at": one["next"][0], "node": "n", "result": "failed"}
    attacked = [
        {**one, "name": text, "by": text, "cron": text, "zone": text, "device": text, "paused": text}
        | {"command": {"method": text, "params": {text: text}}}
        | {"occurrences": [{**occurrence, "reason": text, "began": text}]}
        for text in TEXTS
    ]
    async with open_page(there.page()) as page:
        await answers(page, ALL, {"schedules": attacked})
        await page.goto(there.page("schedules"))
        await expect(page.get_by_text(f"{len(TEXTS)} schedules shown")).to_be_visible()
        for summary in await page.locator("summary[data-row]").all():
            await summary.click()
        await expect(page.get_by_text("⟨U+202E⟩turned").first).to_be_visible()
        await harmless(page)
