"""People do all of it by the keyboard alone: the focus is never lost, nor hidden below the head of the page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from homing_rig.receivers import Receiver, receiving
from tests.api.rig import DEVICE
from tests.api.test_access import Site as Guarded
from tests.console.conftest import OpenPage
from tests.console.site import EVENTS, Site
from tests.console.test_sessions import guarded_site
from tests.console.test_webhooks import SERVED, gone
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

MOST_STEPS: Final = 80
FOCUS: Final = """() => {
    const one = document.activeElement;
    if (!one || one === document.body) return "lost";
    const head = document.querySelector("header");
    if (head.contains(one) || one.closest("dialog")) return "";
    const box = one.getBoundingClientRect();
    return box.bottom > head.getBoundingClientRect().bottom && box.top < innerHeight ? "" : "hidden";
}"""
IS_FOCUSED: Final = "(one) => one === document.activeElement"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Site, Guarded, Receiver]]:
    folder = tmp_path_factory.mktemp("keyboard")
    async with guarded_site(folder, events=EVENTS, webhooks=SERVED) as (site, people), receiving() as receiver:
        yield site, people, receiver


@pytest.fixture(scope="module")
def login() -> list[Any]:
    """The cookies of the login: a node looks at five attempts of a person in a minute, and there are more tests."""
    return []


@pytest_asyncio.fixture(loop_scope="session")
async def page(there: tuple[Site, Guarded, Receiver], open_page: OpenPage, login: list[Any]) -> AsyncIterator[Page]:
    """A page of somebody who has logged in, by the keyboard too."""
    site, people, _ = there
    async with open_page(site.page()) as page:
        if login:
            await page.context.add_cookies(login)
            await page.reload()
        else:
            await reach(page, page.get_by_label("Key", exact=True))
            await page.keyboard.type(people.keys["boss"].text)
            await page.keyboard.press("Enter")
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        login[:] = await page.context.cookies()
        yield page


async def reach(page: Page, wanted: Locator, key: str = "Tab") -> None:
    """Press a key until the focus is there; it is somewhere that can be seen at each step."""
    await expect(wanted).to_be_visible()
    for _ in range(MOST_STEPS):
        await page.keyboard.press(key)
        if await wanted.evaluate(IS_FOCUSED):
            assert await page.evaluate(FOCUS) == ""
            return
    raise AssertionError(f"{MOST_STEPS} times {key} do not lead to {wanted}")


async def focus_is_kept(page: Page) -> None:
    """Return when somebody sees it: it moves on a moment after what had it has gone."""

    async def seen() -> bool:
        return bool(await page.evaluate(FOCUS) == "")

    await eventually(seen)


async def sent(people: Guarded, method: str) -> str:
    """The id of a command that goes on, or has ended."""
    asked = {"Prefer": "respond-async", **people.headers("operator")}
    body = {"method": method, "timeout": "30m"}
    answer = await people.rig.http.post(f"/v1/devices/{DEVICE}/commands", json=body, headers=asked)
    return str(answer.json()["id"])


async def ended(people: Guarded, method: str) -> str:
    """The id of a command that has ended."""
    command = await sent(people, method)

    async def is_over() -> bool:
        read = await people.rig.http.get(f"/v1/commands/{command}", headers=people.headers("operator"))
        return read.json()["finished_at"] is not None

    await eventually(is_over)
    return command


async def heading_is(page: Page, text: str | re.Pattern[str]) -> None:
    """Return once a page with this heading has the focus."""
    await expect(page.get_by_role("heading", level=1)).to_have_text(text)
    await expect(page.get_by_role("heading", level=1)).to_be_focused()


async def test_whose_trouble_it_is_and_the_evidence(page: Page) -> None:
    await reach(page, page.get_by_role("link", name="Evidence"))
    await page.keyboard.press("Enter")
    await heading_is(page, "Nodes")


async def test_what_fails_and_the_newest_explanation(page: Page, there: tuple[Site, Guarded, Receiver]) -> None:
    await ended(there[1], "refuse")
    await page.reload()
    await expect(page.get_by_role("link", name="refused by the device")).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await heading_is(page, f"refuse on {DEVICE}")


async def test_what_became_of_a_command(page: Page, there: tuple[Site, Guarded, Receiver]) -> None:
    command = await ended(there[1], "ok")
    await page.keyboard.press("/")
    await page.keyboard.type(command)
    await page.keyboard.press("Enter")
    await heading_is(page, f"ok on {DEVICE}")


async def test_a_command_is_sent_followed_and_cancelled(page: Page) -> None:
    await page.keyboard.type("gd")
    await heading_is(page, "Devices")
    await reach(page, page.get_by_label("Device id"))
    await page.keyboard.type(DEVICE)
    await page.keyboard.press("Enter")
    await heading_is(page, DEVICE)
    await page.keyboard.press("s")
    await heading_is(page, f"Send to {DEVICE}")
    await reach(page, page.get_by_label("Method", exact=True))
    await page.keyboard.type("silent")
    await page.keyboard.press("Enter")
    await heading_is(page, f"silent on {DEVICE}")
    await reach(page, page.get_by_role("button", name="Cancel …"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog").get_by_role("button", name="No", exact=True)).to_be_focused()
    await reach(page, page.get_by_role("button", name="Cancel the command"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Cancel …")).to_have_count(0)
    await heading_is(page, f"silent on {DEVICE}")


async def test_what_devices_say_and_what_their_profile_knows(page: Page) -> None:
    await page.keyboard.type("ge")
    await heading_is(page, "Events")
    await reach(page, page.get_by_role("textbox", name=re.compile("opic")).first)
    await page.keyboard.press("Control+a")
    await page.keyboard.type("homing/+/event")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("event"))
    await page.keyboard.press("Escape")
    await reach(page, page.get_by_role("link", name="Profiles"), "Shift+Tab")
    await page.keyboard.press("Enter")
    await heading_is(page, "Profiles")
    await reach(page, page.get_by_role("link", name="dji", exact=True), "j")
    await page.keyboard.press("Enter")
    await heading_is(page, "dji")


async def test_a_delivery_is_sent_once_more(page: Page, there: tuple[Site, Guarded, Receiver]) -> None:
    _, people, receiver = there
    receiver.answer = gone
    hook = {"url": receiver.url, "events": ["command.succeeded"], "tenant": "air"}
    made = await people.rig.http.post("/v1/webhooks", json=hook, headers=people.headers("boss"))
    await ended(people, "ok")

    async def is_disabled() -> bool:
        read = await people.rig.http.get(f"/v1/webhooks/{made.json()['id']}", headers=people.headers("boss"))
        return not read.json()["enabled"]

    await eventually(is_disabled)
    await page.keyboard.type("gw")
    await heading_is(page, "Webhooks")
    await reach(page, page.get_by_role("link", name=receiver.url), "j")
    await page.keyboard.press("Enter")
    await heading_is(page, receiver.url)
    await reach(page, page.locator("summary").first, "j")
    await page.keyboard.press("Enter")
    await reach(page, page.get_by_role("button", name="Redeliver …", exact=True))
    await page.keyboard.press("Enter")
    await reach(page, page.get_by_role("button", name="Deliver it again"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("It is delivered again.")).to_be_visible()
    await expect(page.get_by_role("button", name="Redeliver …", exact=True)).to_have_count(0)
    await focus_is_kept(page)


async def test_a_key_is_made_and_who_may_do_what_is_asked(page: Page) -> None:
    await page.keyboard.type("ga")
    await heading_is(page, "Access")
    await reach(page, page.get_by_text("New key", exact=True))
    await page.keyboard.press("Enter")
    await reach(page, page.get_by_role("button", name="Make it"))
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="The new key")
    await reach(page, dialog.get_by_role("button", name="I have it"))
    await page.keyboard.press("Enter")
    await expect(dialog).to_have_count(0)
    await focus_is_kept(page)
    await reach(page, page.get_by_role("link", name="May they?"), "Shift+Tab")
    await page.keyboard.press("Enter")
    await reach(page, page.get_by_label("Action"))
    await page.keyboard.type("fleet")
    await reach(page, page.get_by_role("button", name="May they?"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status", name="Decision")).to_contain_text("Yes")
