"""Journeys of people on the pages of the console, in a real browser, by roles and texts."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from io import StringIO
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Error, Page, Route, expect

from tests.console.conftest import OpenPage
from tests.console.site import Site, furnished, site
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)


HIDDEN_MS = 30_000
"""After so long in the background a page ends its stream."""
HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site() as one:
        yield one


async def rows(page: Page) -> list[str]:
    return await page.locator("[data-row]").all_inner_texts()


async def test_home_says_who_is_in_trouble_and_leads_to_the_explanation(there: Site, open_page: OpenPage) -> None:
    made = await furnished(there)
    async with open_page(f"{there.url}/") as page:
        await expect(page).to_have_url(f"{there.url}/console/")
        verdict = page.get_by_role("region", name="Verdict")
        await expect(verdict).to_contain_text("Devices")
        await expect(verdict).to_contain_text("2 commands to drone-1 failed")
        await expect(page.get_by_text("nodes 1/1")).to_be_visible()
        await expect(page.get_by_role("heading", name="Open now 1")).to_be_visible()
        await page.get_by_role("link", name="the device is silent").click()
        await expect(page).to_have_url(f"{there.url}/console/#/commands/{made['silent']}")
        await expect(page.get_by_role("heading", name="cover_open on drone-1")).to_be_focused()
        await expect(page.get_by_role("region", name="Explanation")).to_contain_text("did not answer")
        await expect(page.get_by_text("acknowledged by the broker")).to_be_visible()


async def test_a_quiet_node_says_that_all_is_well(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("region", name="Verdict")).to_contain_text("All is well")
        await expect(page.get_by_text("No command that you may read has failed")).to_be_visible()
        await expect(page.get_by_text("No command is open.")).to_be_visible()
        await expect(page.get_by_text("This node asks nobody who they are.")).to_be_visible()


async def test_the_evidence_of_devices_is_what_failed_last(there: Site, open_page: OpenPage) -> None:
    await there.ended("refuse")
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("region", name="Verdict")).to_contain_text("Devices")
        await page.get_by_role("link", name="Evidence").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("refuse")


async def test_a_broker_that_is_away_is_named_and_not_the_devices(there: Site, open_page: OpenPage) -> None:
    await there.ended("refuse")
    there.rig.mqtt.connection_lost()
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("region", name="Verdict")).to_contain_text("The broker")
        await expect(page.get_by_text("broker 0/1")).to_be_visible()
        await page.get_by_role("link", name="Evidence").click()
        await expect(page.get_by_text("no connection to the MQTT broker")).to_be_visible()


async def test_a_node_that_does_not_answer_leaves_old_data_with_their_age(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        for path in ("**/v1/overview", "**/v1/overview/events"):
            await page.route(path, lambda route: route.abort())
        there.rig.application.overviews.dismiss()  # its stream breaks
        await expect(page.get_by_role("alert")).to_contain_text("Shown is the state of")
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await page.unroute("**/v1/overview")
        await page.get_by_role("button", name="Try again").click()
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_trouble_is_shown_when_it_comes_and_nobody_looks_for_it(there: Site, open_page: OpenPage) -> None:
    asked: list[str] = []
    async with open_page(there.page("nowhere")) as page:
        page.on("request", lambda request: asked.append(request.url) if "v1/overview" in request.url else None)
        await page.goto(there.page())
        await expect(page.get_by_role("region", name="Verdict")).to_contain_text("Nothing is in trouble")
        await expect(page.get_by_text("followed while this page is visible")).to_be_visible()
        there.rig.mqtt.connection_lost()
        await expect(page.get_by_role("region", name="Verdict")).to_contain_text("The broker")
    assert asked == [f"{there.url}/v1/overview/events"]


async def test_commands_come_live_and_wait_while_somebody_points_at_the_list(there: Site, open_page: OpenPage) -> None:
    await there.ended("first", timeout="50ms")
    async with open_page(there.page("commands")) as page:
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        await there.ended("second", timeout="50ms")
        await expect(page.get_by_role("cell", name="second")).to_be_visible()
        await page.get_by_role("row").filter(has_text="first").get_by_role("link").hover()
        await there.ended("third", timeout="50ms")
        await page.get_by_role("button", name="1 new").click()
        await expect(page.get_by_role("cell", name="third")).to_be_visible()
        await page.get_by_role("button", name="Pause").click()
        await there.ended("fourth", timeout="50ms")
        await page.get_by_role("button", name="Go on").click()  # goes on where it was
        await expect(page.get_by_role("cell", name="fourth")).to_be_visible()


async def test_a_list_that_goes_away_under_the_pointer_holds_nothing_back(there: Site, open_page: OpenPage) -> None:
    await there.ended("ok")
    async with open_page(there.page("commands")) as page:
        await page.locator("[data-row]").first.hover()
        await page.evaluate("() => { location.hash = '#/commands?device=other-1'; }")
        await expect(page.get_by_text("No command on record fits these filters")).to_be_visible()
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        await there.ended("meanwhile", device="other-1", timeout="50ms")
        await expect(page.get_by_role("cell", name="meanwhile")).to_be_visible()


async def test_what_is_listed_is_copied_for_a_spreadsheet_and_is_no_formula(there: Site, open_page: OpenPage) -> None:
    command = await there.send("fly")
    formula = '=HYPERLINK("//evil");+1\n-2'
    await there.answer(command, f'"status":"error","error":{{"code":1,"message":{json.dumps(formula)}}}')
    async with open_page(there.page("commands"), permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.get_by_role("button", name="Copy as CSV").click()
        await expect(page.get_by_text("copied")).to_be_visible()
        copied = await page.evaluate("() => navigator.clipboard.readText()")
    (line,) = csv.DictReader(StringIO(copied, newline=""))
    assert (line["id"], line["state"]) == (command, "failed")
    assert line["error"] == """'=HYPERLINK("//evil");'+1\n'-2"""


async def test_progress_and_outcome_reach_the_row_that_is_there(there: Site, open_page: OpenPage) -> None:
    command = await there.send("fly")
    async with open_page(there.page("commands")) as page:
        row = page.get_by_role("row").filter(has_text="fly")
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        await there.progress(command, 62)
        await expect(row).to_contain_text("62 %")
        await there.answer(command, '"status":"ok"')
        await expect(row).to_contain_text("succeeded")
        await expect(row).to_have_count(1)


async def test_filters_are_in_the_address(there: Site, open_page: OpenPage) -> None:
    await furnished(there)
    async with open_page(there.page("commands")) as page:
        await page.get_by_label("State").select_option("timed_out")
        await expect(page).to_have_url(there.page("commands?state=timed_out"))
        await expect(page.get_by_text("1 command shown")).to_be_visible()
        await page.get_by_label("Method").fill("nothing*")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("No command on record fits these filters")).to_be_visible()
    async with open_page(there.page("commands?device=drone-*&method=cover_*")) as page:
        await expect(page.get_by_text("1 command shown")).to_be_visible()


async def test_older_commands_of_other_filters_come_into_no_list(there: Site, open_page: OpenPage) -> None:
    ids = [await there.ended(method, timeout="50ms") for method in ("first", "second")]
    first, second = [(await there.rig.http.get(f"/v1/commands/{one}")).json() for one in ids]
    asked, let, told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(route: Route) -> None:
        found = {"commands": [first], "cursor": "c1"}
        if older := "cursor=c1" in route.request.url:
            asked.set()
            await let.wait()
            found = {"commands": [second], "cursor": "c2"}
        with suppress(Error):  # nobody may be waiting for it any more
            await route.fulfill(body=json.dumps(found), content_type="application/json")
        if older:
            told.set()

    async with open_page(there.page()) as page:
        await page.route("**/v1/commands?*", answer)
        await page.goto(there.page("commands"))
        await page.get_by_role("button", name="Older").click()
        await asked.wait()
        async with page.expect_response("**/v1/commands?*method=first*"):
            await page.get_by_label("Method").fill("first")
            await page.keyboard.press("Enter")
        let.set()
        await told.wait()
        await page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        await expect(page.get_by_role("cell", name="first")).to_be_visible()
        await expect(page.get_by_role("cell", name="second")).to_have_count(0)


async def test_a_stream_that_is_refused_is_tried_again_from_where_it_was(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("commands")) as page:
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        asked: list[str | None] = []

        async def refuse(route: object) -> None:
            request = route.request  # type: ignore[attr-defined] # playwright's
            asked.append(await request.header_value("last-event-id"))
            await route.fulfill(status=503, headers={"Retry-After": "1"}, body="{}")  # type: ignore[attr-defined]

        await page.route("**/v1/commands/events*", refuse)
        there.rig.application.streams.dismiss()  # as a node does that stops
        await expect(page.get_by_text("connection lost, trying again")).to_be_visible()
        await there.ended("meanwhile", timeout="50ms")
        await page.unroute("**/v1/commands/events*")
        await expect(page.get_by_role("cell", name="meanwhile")).to_be_visible()
        assert asked
        assert all(asked)


async def test_a_page_in_the_background_ends_its_stream_and_goes_on_where_it_was(
    there: Site, open_page: OpenPage
) -> None:
    async with open_page(f"{there.url}/healthz") as page:
        await page.clock.install()
        await page.goto(there.page("commands"))
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        await page.evaluate(HIDE, arg=True)
        await page.clock.fast_forward(HIDDEN_MS)
        await eventually(lambda: len(there.rig.application.streams) == 0)
        await expect(page.get_by_text("asleep in the background")).to_be_visible()
        await there.ended("meanwhile", timeout="50ms")
        await page.evaluate(HIDE, arg=False)
        await expect(page.get_by_role("cell", name="meanwhile")).to_be_visible()


async def test_an_open_command_is_followed_to_its_end(there: Site, open_page: OpenPage) -> None:
    command = await there.send("fly", {"height": 20})
    async with open_page(there.page(f"commands/{command}")) as page:
        await expect(page.get_by_text("Waiting")).to_be_visible()
        await expect(page.get_by_text("left to its deadline")).to_be_visible()
        for percent in (40, 41.0):
            await there.progress(command, percent)
            await expect(page.get_by_role("progressbar")).to_have_attribute("value", f"{percent:g}")
        await there.answer(command, '"status":"ok","result":{"serial":9007199254740993}')
        await expect(page.get_by_text("It has succeeded.")).to_be_visible()
        await page.get_by_text("Result", exact=True).click()
        await expect(page.get_by_text("9007199254740993")).to_be_visible()


async def test_cancelling_says_first_that_the_device_is_not_told(there: Site, open_page: OpenPage) -> None:
    command = await there.send("fly")
    async with open_page(there.page(f"commands/{command}")) as page:
        await page.get_by_role("button", name="Cancel …").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("The device is not told")
        await expect(dialog.get_by_role("button", name="No", exact=True)).to_be_focused()
        await dialog.get_by_role("button", name="Cancel the command").click()
        await expect(page.get_by_text("A caller cancelled it")).to_be_visible()
    assert (await there.rig.http.get(f"/v1/commands/{command}")).json()["state"] == "cancelled"


@pytest.mark.parametrize("unknown", ["120-01JC8ZQ5M7W3T9K2V4X6Y8B0D1", "no id", "%E0%A4%A", "<img src=x>"])
async def test_an_unknown_command_is_said_to_be_unknown(there: Site, open_page: OpenPage, unknown: str) -> None:
    async with open_page(there.page(f"commands/{quote(unknown, safe='%')}")) as page:
        await expect(page.get_by_role("alert")).to_contain_text("There is no such command")


async def test_the_search_finds_a_command_by_its_id_and_else_a_device(there: Site, open_page: OpenPage) -> None:
    command = await there.ended("ok")
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await page.keyboard.press("/")
        await expect(page.get_by_label("Command id or device")).to_be_focused()
        await page.keyboard.type(f" {command.lower()} ")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="ok on drone-1")).to_be_visible()
        await expect(page.get_by_label("Command id or device")).to_have_value("")
        await page.get_by_label("Command id or device").fill("dock-*")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("No command on record fits these filters")).to_be_visible()
        await expect(page.get_by_role("link", name="The device")).to_have_count(0)
        await page.get_by_label("Command id or device").fill("drone-1")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="The device drone-1").click()
        await expect(page.get_by_role("heading", name="drone-1", level=1)).to_be_focused()


async def test_keys_lead_everywhere_and_do_nothing_in_fields(there: Site, open_page: OpenPage) -> None:
    await furnished(there)
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await page.keyboard.type("gc")
        await expect(page.get_by_role("heading", name="Commands")).to_be_focused()
        await expect(page.get_by_text("4 commands shown")).to_be_visible()
        await page.keyboard.type("jj")
        await expect(page.locator("[data-row]").nth(1)).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="What happened")).to_be_visible()
        await page.keyboard.type("gn")
        await expect(page.get_by_role("article", name="Node node-a")).to_be_visible()
        await page.get_by_label("Command id or device").fill("")
        await page.keyboard.type("gh")
        await expect(page.get_by_role("article", name="Node node-a")).to_be_visible()
        await page.get_by_label("Command id or device").blur()
        await page.keyboard.type("?")
        await page.get_by_label("Keys of one letter do something").uncheck()
        await page.keyboard.press("Escape")
        await page.keyboard.type("gh")
        await expect(page.get_by_role("article", name="Node node-a")).to_be_visible()


async def test_theme_and_zone_are_chosen_and_kept(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page(), timezone_id="Asia/Kathmandu") as page:
        zone = page.get_by_role("button", name="Times are in UTC+05:45")
        await zone.click()
        await expect(page.get_by_role("button", name="Times are in UTC.")).to_be_visible()
        await page.get_by_role("button", name="Colours: as the system").click()
        await page.get_by_role("button", name="Colours: light").click()
        await page.reload()
        await expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
        await expect(page.get_by_role("button", name="Times are in UTC.")).to_be_visible()
        background = "() => getComputedStyle(document.body).backgroundColor"
        assert await page.evaluate(background) == "rgb(19, 23, 26)"


async def test_what_is_copied_sends_the_command_again_and_has_no_key(there: Site, open_page: OpenPage) -> None:
    command = await there.send("fly", {"note": 'it\'s $(id) `id` "x"\n'})
    async with open_page(there.page(f"commands/{command}"), permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.get_by_role("button", name="Copy as curl").click()
        await expect(page.get_by_text("copied")).to_be_visible()
        copied = await page.evaluate("() => navigator.clipboard.readText()")
        assert "Bearer $HOMING_KEY" in copied
        assert r"""'{"method":"fly","params":{"note":"it'\''s $(id) `id` \"x\"\n"},"profile":"homing"}'""" in copied


async def test_scripts_of_another_build_are_tried_again(there: Site, open_page: OpenPage) -> None:
    async with open_page(f"{there.url}/healthz") as page:
        tries = 0

        async def old(route: object) -> None:
            nonlocal tries
            tries += 1
            if tries <= 2:
                await route.fulfill(status=404, body="")  # type: ignore[attr-defined] # playwright's
            else:
                await route.continue_()  # type: ignore[attr-defined] # playwright's

        await page.route("**/app.js", old)
        await page.goto(there.page())
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        assert tries > 2
