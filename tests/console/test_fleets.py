"""The pages of fleet runs: how far one is, why it stands, what is asked before it is done, and beginning one."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.console.conftest import OpenPage
from tests.console.site import (
    EVENTS,
    Site,
    answers,
    asked_again,
    fleet_run,
    furnished_fleets,
    has_events,
    site,
    tell_presence,
)
from tests.console.test_hostile import TEXTS, harmless
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there() -> AsyncIterator[tuple[Site, dict[str, str]]]:
    async with site(events=EVENTS) as one:
        yield one, await furnished_fleets(one)


async def test_the_list_says_how_far_each_run_is_and_keys_lead_to_one(
    there: tuple[Site, dict[str, str]], open_page: OpenPage
) -> None:
    site, _ = there
    async with open_page(site.page()) as page:
        await expect(page.get_by_role("link", name="Fleets")).to_be_visible()
        await page.keyboard.type("gf")
        await expect(page.get_by_role("heading", name="Fleets")).to_be_focused()
        paused = page.get_by_role("row").filter(has_text="paused")
        await expect(paused).to_contain_text("2 of 5 ended")
        await expect(page.get_by_role("row").filter(has_text="ended, not all succeeded")).to_contain_text("2 of 2")
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_be_focused()


async def test_a_run_says_why_it_stands_how_far_its_waves_are_and_what_failed(
    there: tuple[Site, dict[str, str]], open_page: OpenPage
) -> None:
    site, runs = there
    async with open_page(site.page(f"fleets/{runs['paused']}")) as page:
        why = page.get_by_role("region", name="Why it stands")
        await expect(why).to_contain_text("between two waves")
        await expect(page.get_by_role("progressbar", name="Wave 1")).to_have_attribute("value", "2")
        await expect(page.get_by_role("progressbar", name="Wave 2")).to_have_attribute("value", "0")
        await expect(page.get_by_text("0 of 3 ended")).to_be_visible()
        await page.get_by_role("combobox").select_option("waiting")
        await expect(page.get_by_text("3 targets shown")).to_be_visible()
        await page.get_by_role("combobox").select_option("timed_out")
        await expect(page.get_by_text("No target that you may read is in this state.")).to_be_visible()
        await page.goto(site.page(f"fleets/{runs['failed']}"))
        await expect(page.get_by_role("row").filter(has_text="2×")).to_contain_text("no GPS")
        await page.get_by_role("link", name="dock-8").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("refuse on dock-8")


async def test_a_run_is_stopped_and_goes_on_after_a_question(open_page: OpenPage) -> None:
    async with site(events=EVENTS) as site_:
        await has_events(site_)
        await tell_presence(site_, ["dock-1", "dock-2"])
        run = await fleet_run(site_, ["dock-1", "dock-2"], "silent", "running", in_flight=1)
        async with open_page(site_.page(f"fleets/{run}")) as page:
            await page.get_by_role("button", name="Pause …").click()
            await expect(page.get_by_role("dialog")).to_contain_text("what is held is not sent before the run goes on")
            await page.get_by_role("button", name="Pause it").click()
            await expect(page.get_by_text("The run is paused.")).to_be_visible()
            await expect(page.get_by_role("button", name="Pause …")).to_have_count(0)
            await asked_again(page, "Resume …", "Let it go on")
            await expect(page.get_by_role("button", name="Pause …")).to_be_visible()
            await page.get_by_role("button", name="Abort …").click()
            await expect(page.get_by_role("dialog")).to_contain_text("what is held is cancelled, and not sent")
            await page.get_by_label("Cancel the").check()
            await page.get_by_role("button", name="Abort it").click()
            await expect(page.get_by_role("region", name="Why it stands")).to_contain_text("Abort")
            await page.get_by_role("button", name="Read again").first.click()
            await expect(page.get_by_role("listitem").filter(has_text="skipped").first).to_be_visible()


async def test_a_run_is_begun_once_after_it_was_seen_what_it_would_be(open_page: OpenPage) -> None:
    async with site(events=EVENTS) as site_, open_page(site_.page("fleets")) as page:
        await expect(page.get_by_text("No run is on record")).to_be_visible()
        await flawless(page)
        await page.get_by_role("link", name="New run …").click()
        await page.get_by_label("Devices", exact=True).fill("dock-1, dock-2\ndock-3")
        await page.get_by_label("Method", exact=True).fill("ok")
        await page.get_by_label("Waves").fill("1 wait, rest")
        await page.get_by_role("button", name="See what it would be").click()
        would_be = page.get_by_role("status", name="What it would be")
        await expect(would_be).to_contain_text("3 devices, in 2 waves of 1, 2")
        await expect(page.get_by_role("button", name="Begin …")).to_be_in_viewport(ratio=1)
        assert (await site_.rig.http.get("/v1/fleet-runs")).json()["runs"] == []
        await page.get_by_role("button", name="Begin …").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("button", name="No", exact=True)).to_be_focused()
        await dialog.get_by_role("button", name="Begin on 3 devices").dblclick()
        await expect(page.get_by_role("heading", level=1)).to_have_text("ok on 3 devices")
        (run,) = (await site_.rig.http.get("/v1/fleet-runs")).json()["runs"]
        assert (run["targets"], run["command"]["method"]) == ({"devices": ["dock-1", "dock-2", "dock-3"]}, "ok")
        assert run["stop"] == [{"of": ["failed", "timed_out"], "share": "5%", "then": "pause"}]


async def test_another_run_is_begun_once_for_those_that_failed(open_page: OpenPage) -> None:
    async with site(events=EVENTS) as site_:
        await has_events(site_)
        docks = ["dock-1", "dock-2"]
        await tell_presence(site_, docks)
        run = await fleet_run(site_, docks, "refuse", "failed")
        async with open_page(site_.page(f"fleets/{run}")) as page:
            await expect(page.get_by_role("heading", level=1)).to_have_text("refuse on 2 devices")
            await page.get_by_role("button", name="Run again …").click()
            dialog = page.get_by_role("dialog")
            await expect(dialog.get_by_role("button", name="No", exact=True)).to_be_focused()
            await expect(dialog).to_contain_text(f"homing fleet retry {run}")
            await flawless(page)
            await dialog.get_by_role("button", name="Begin on 2 devices").dblclick()
            await expect(page).not_to_have_url(re.compile(run))
            await expect(page.get_by_text("dock-2").first).to_be_visible()
        runs = (await site_.rig.http.get("/v1/fleet-runs")).json()["runs"]
        assert runs[0]["targets"] == {"run": {"id": run, "of": ["failed", "timed_out"]}}
        assert len(runs) == 2


async def test_what_is_wrong_with_a_run_is_said_before_it_is_begun(
    there: tuple[Site, dict[str, str]], open_page: OpenPage
) -> None:
    site, _ = there
    async with open_page(site.page("fleets/new")) as page:
        await page.get_by_label("Method", exact=True).fill("ok")
        await page.get_by_role("button", name="See what it would be").click()
        await expect(page.get_by_role("alert")).to_contain_text("answered 422")
        await page.get_by_label("all of it as JSON").check()
        await expect(page.get_by_label("The run as JSON")).to_have_value(re.compile('"method": "ok"'))
        await page.get_by_label("The run as JSON").fill('{"targets": }')
        await page.get_by_role("button", name="See what it would be").click()
        await expect(page.get_by_text("is no JSON")).to_be_visible()
        await expect(page.get_by_label("The run as JSON")).to_be_focused()
        await flawless(page)


async def test_no_text_of_a_run_becomes_anything_else(there: tuple[Site, dict[str, str]], open_page: OpenPage) -> None:
    site, runs = there
    found = (await site.rig.http.get(f"/v1/fleet-runs/{runs['failed']}")).json()
    why = (await site.rig.http.get(f"/v1/fleet-runs/{runs['failed']}/explain")).json()
    (told, *_), (row, *_) = found["steps"], why["failures"]
    attacked = [
        {**found, "by": text, "driver": text, "command": {**found["command"], "method": text}}
        | {"steps": [{**told, "said": text, "by": text}], "targets": {text: text}}
        for text in TEXTS
    ]
    failures = [{**row, "code": text, "message": text, "devices": [text]} for text in TEXTS]
    target = {"device_id": "d", "profile": "p", "wave": 1, "state": "failed", "command_id": None, "ended_at": None}
    async with open_page(site.page()) as page:
        await answers(page, "**/v1/fleet-runs?*", {"runs": attacked, "cursor": None})
        await page.goto(site.page("fleets"))
        await expect(page.get_by_text(f"{len(TEXTS)} runs shown")).to_be_visible()
        await harmless(page)
        await answers(page, f"**/{runs['failed']}/explain", {**why, "said": TEXTS[0], "failures": failures})
        rows = [{**target, "device_id": text, "code": text, "message": text} for text in TEXTS]
        rows.append({**target, "device_id": "dock-odd", "code": {"number": 314000.0}, "message": ""})
        await answers(page, f"**/{runs['failed']}/targets?*", {"targets": rows, "cursor": None})
        await answers(page, f"**/v1/fleet-runs/{runs['failed']}", attacked[0])
        await page.goto(site.page(f"fleets/{runs['failed']}"))
        await expect(page.get_by_text(f"{len(rows)} targets shown")).to_be_visible()
        await expect(page.get_by_role("row").filter(has_text="dock-odd")).to_contain_text('{"number":314000.0}')
        await expect(page.get_by_text("⟨U+202E⟩turned").first).to_be_visible()
        await harmless(page)


@IN_EVERY_LOOK
async def test_pages_of_runs_are_accessible_and_fit(
    there: tuple[Site, dict[str, str]], open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    site, runs = there
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    async with open_page(site.page("fleets"), **options) as page:
        for name, route, settled in (
            ("fleets", "fleets", page.get_by_text("2 runs shown")),
            ("paused", f"fleets/{runs['paused']}", page.get_by_role("button", name="Resume …")),
            ("failed", f"fleets/{runs['failed']}", page.get_by_role("heading", name="What failed")),
            ("unknown", "fleets/run-x", page.get_by_role("alert")),
            ("new", "fleets/new", page.get_by_label("Waves")),
        ):
            await page.goto(site.page(route))
            await expect(settled).to_be_visible()
            await flawless(page)
            await page.screenshot(path=tmp_path / f"{name}-{theme}-{width}.png", full_page=True)
        await page.goto(site.page(f"fleets/{runs['paused']}"))
        for button in ("Resume …", "Abort …"):
            await page.get_by_role("button", name=button).click()
            await expect(page.get_by_role("dialog")).to_be_visible()
            await flawless(page)
            await page.keyboard.press("Escape")


async def test_a_node_without_runs_has_no_such_entry_and_says_what_it_needs(
    there: tuple[Site, dict[str, str]], open_page: OpenPage
) -> None:
    site, _ = there
    async with open_page(site.page()) as page:
        off = {"title": "No fleet runs", "detail": "this node drives no fleet runs", "status": 409}
        await page.route("**/v1/fleet-runs?*", lambda route: route.fulfill(status=409, body=json.dumps(off)))
        await page.goto(site.page("fleets"))
        await expect(page.get_by_text("this node drives no fleet runs")).to_be_visible()
        await flawless(page)
