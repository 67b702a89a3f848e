"""The pages of access: a key that is shown once, people, roles, whether somebody may, and who has done what."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Page, Response, expect

from app.core.access.rules import BUILT_IN
from tests.api.test_access import Site as Guarded
from tests.console.conftest import OpenPage
from tests.console.site import EVENTS, Site, answers
from tests.console.test_hostile import TEXTS, harmless
from tests.console.test_looks import IN_EVERY_LOOK, SIZES, flawless
from tests.console.test_sessions import guarded_site, log_in
from tests.console.test_webhooks import SERVED
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

KEY: Final = re.compile("homing_[0-9A-Z]{8}_")
ALL: Final = ("Home", "Commands", "Devices", "Fleets", "Queues", "Webhooks", "Events", "Nodes", "Profiles", "Access")
PARTS: Final = ("Keys", "People", "Roles", "May they?", "Audit")


@pytest_asyncio.fixture(loop_scope="session")
async def there(tmp_path: Path) -> AsyncIterator[tuple[Site, Guarded]]:
    """One for each test: a node lets a person log in five times a minute, and the tests take less."""
    async with guarded_site(tmp_path, events=EVENTS, webhooks=SERVED) as found:
        yield found


async def test_a_new_key_is_shown_once_and_is_nowhere_afterwards(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, people = there
    async with open_page(site.page("access/keys")) as page:
        await log_in(page, people.keys["admin"].text)
        await page.get_by_text("New key", exact=True).click()
        await page.get_by_label("For", exact=True).fill("operator")
        await page.get_by_label("Purpose").fill("of the rig")
        await page.get_by_label("Narrow").fill("allow read everything")
        await page.get_by_role("button", name="Make it").click()
        await expect(page.get_by_role("alert")).to_contain_text("answered 422")
        await page.get_by_label("Narrow").fill("allow read *:* on *")
        await page.get_by_role("button", name="Make it").click()
        dialog = page.get_by_role("dialog", name="The new key")
        await expect(dialog.get_by_role("region", name="The secret")).to_have_text(KEY)
        await flawless(page)
        key = await dialog.get_by_role("region", name="The secret").inner_text()
        await dialog.get_by_role("button", name="I have it").click()
        await expect(dialog).to_have_count(0)
        row = page.get_by_role("row").filter(has_text="of the rig")
        await expect(row).to_contain_text("allow read *:* on *")
        kept = await page.evaluate("() => JSON.stringify({...localStorage, ...sessionStorage})")
        assert key not in f"{await page.content()}{kept}{page.url}"
        me = await people.rig.http.get("/v1/me", headers={"Authorization": f"Bearer {key}"})
        assert me.json()["principal"] == "operator"

        await row.get_by_role("button", name="Rotate …").click()
        await page.get_by_role("dialog").get_by_label("The old one counts for").fill("0s")
        await page.get_by_role("button", name="Replace it").click()
        await page.get_by_role("button", name="I have it").click()
        counting = row.filter(has_text="counts")
        await expect(counting).to_have_count(1)
        await counting.get_by_role("button", name="Revoke …").click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke it").click()
        await expect(row.filter(has_text="revoked")).to_have_count(1)


async def test_whoever_replaces_the_key_of_their_login_sees_the_new_one(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, people = there
    await people.add("turner", "operator")
    old = people.keys["turner"]
    async with open_page(site.page("access/keys")) as page:
        await log_in(page, old.text)
        row = page.get_by_role("row").filter(has=page.get_by_role("cell", name=old.id, exact=True))
        await row.get_by_role("button", name="Rotate …").click()
        await page.get_by_role("dialog").get_by_label("The old one counts for").fill("0s")
        await page.get_by_role("button", name="Replace it").click()
        await eventually(lambda: refused(people, "turner"))
        dialog = page.get_by_role("dialog", name="The new key")
        for _ in range(3):
            await page.keyboard.press("Escape")
        new = await dialog.get_by_role("region", name="The secret").inner_text()
        await dialog.get_by_role("button", name="I have it").click()
        await expect(page.get_by_text("Your login has ended.")).to_be_visible()
        await log_in(page, new)


async def test_people_roles_decisions_and_the_audit_are_shown(there: tuple[Site, Guarded], open_page: OpenPage) -> None:
    site, people = there
    await people.add("guest", "viewer")
    async with open_page(site.page("access/people")) as page:
        await log_in(page, people.keys["admin"].text)
        row = page.get_by_role("row").filter(has_text="guest")
        await row.locator("summary").click()
        await expect(row).to_contain_text("viewer in air on *")
        await row.get_by_role("button", name="Disable …").click()
        await page.get_by_role("dialog").get_by_role("button", name="Disable them").click()
        await expect(page.get_by_text("guest is disabled.")).to_be_visible()
        await eventually(lambda: refused(people, "guest"))
        await page.get_by_role("link", name="Roles").click()
        await expect(page.get_by_role("region", name="Rules of viewer")).to_contain_text("allow read *:* on *")
        await page.get_by_role("link", name="May they?").click()
        await page.get_by_label("Who").fill("viewer")
        await page.get_by_label("Device", exact=True).fill("drone-1")
        await page.get_by_label("Profile", exact=True).fill("homing")
        await page.get_by_label("Method").fill("ok")
        await page.keyboard.press("Enter")
        decision = page.get_by_role("status", name="Decision")
        await expect(decision).to_contain_text("No")
        await flawless(page)
        await page.get_by_label("Who").fill("operator")
        await page.keyboard.press("Enter")
        await expect(decision).to_contain_text("operator.5 allow send *:* on *")
        await page.get_by_label("Who").fill("nobody at all")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("answered 404")
        await page.get_by_role("link", name="Audit").click()
        await expect(page.get_by_role("alert")).to_have_count(0)  # the page before has a field Who as well
        await page.get_by_label("Who").fill("admin")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("row").filter(has_text="admin").first).to_be_visible()
        await expect(page).to_have_url(re.compile("who=admin"))


async def test_who_is_disabled_keeps_what_others_have_changed_since_they_were_listed(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, people = there
    await people.add("visitor", "viewer")
    path, headers = "/v1/principals/visitor", people.headers("admin")
    async with open_page(site.page("access/people")) as page:
        await log_in(page, people.keys["admin"].text)
        row = page.get_by_role("row").filter(has_text="visitor")
        await expect(row).to_be_visible()
        found = (await people.rig.http.get(path, headers=headers)).json()
        changed = {name: value for name, value in found.items() if name != "id"} | {"name": "Guest of honour"}
        assert (await people.rig.http.put(path, headers=headers, json=changed)).is_success
        await row.get_by_role("button", name="Disable …").click()
        await page.get_by_role("dialog").get_by_role("button", name="Disable them").click()
        await expect(page.get_by_text("visitor is disabled.")).to_be_visible()
    after = (await people.rig.http.get(path, headers=headers)).json()
    assert (after["name"], after["disabled"]) == ("Guest of honour", True)


async def test_a_command_leads_to_who_has_asked_for_it(there: tuple[Site, Guarded], open_page: OpenPage) -> None:
    site, people = there
    sent = await people.rig.http.post(
        "/v1/devices/drone-1/commands", json={"method": "ok", "params": {}}, headers=people.headers("operator")
    )
    command = sent.json()["id"]

    async def is_told() -> bool:
        read = await people.rig.http.get("/v1/audit?device=drone-1", headers=people.headers("admin"))
        return any(one["line"].get("command") == command for one in read.json()["lines"])

    await eventually(is_told)
    async with open_page(site.page(f"commands/{command}")) as page:
        await log_in(page, people.keys["admin"].text)
        await page.get_by_role("link", name="Who asked").click()
        rows = page.get_by_role("row").filter(has=page.locator(f"a[href='#/commands/{command}']"))
        await expect(rows.filter(has_text="operator")).to_be_visible()  # besides one of its outcome, if that was told
        await page.get_by_label("Until").fill("yesterday")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("answered 422")


async def refused(people: Guarded, who: str) -> bool:
    """True once they are let in no more."""
    return (await people.rig.http.get("/v1/me", headers=people.headers(who))).status_code == 401


@pytest.mark.parametrize("who", sorted(BUILT_IN))
async def test_no_entry_of_a_menu_ends_in_a_refusal(there: tuple[Site, Guarded], open_page: OpenPage, who: str) -> None:
    site, people = there
    if who not in people.keys:
        await people.add(who, who)
    refusals: list[str] = []

    def note(response: Response) -> None:
        if response.status == 403:
            refusals.append(response.url)

    async with open_page(site.page()) as page:
        page.on("response", note)
        await log_in(page, people.keys[who].text)
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        pages = page.get_by_role("navigation", name="Pages")
        hidden = {"Nodes"} if who == "admin" else {"Nodes", "Webhooks", *(() if who == "operator" else ("Fleets",))}
        await expect(pages.get_by_role("link")).to_have_text([one for one in ALL if one not in hidden])
        for name in [one for one in ALL if one not in hidden]:
            await pages.get_by_role("link", name=name).click()
            await settled(page)
        parts = page.get_by_role("navigation", name="Parts of access")
        await expect(parts.get_by_role("link")).to_have_text(PARTS if who == "admin" else PARTS[:1])
        for link in await parts.get_by_role("link").all():
            await link.click()
            await settled(page)
    assert refusals == []


async def settled(page: Page) -> None:
    """Return once the page has read what it shows."""
    await expect(page.get_by_role("heading", level=1)).to_be_attached()
    await expect(page.get_by_label("Loading")).to_have_count(0)


async def test_a_link_to_what_is_not_ones_own_says_which_right_it_needs(
    there: tuple[Site, Guarded], open_page: OpenPage
) -> None:
    site, people = there
    async with open_page(site.page("access/people")) as page:
        await log_in(page, people.keys["viewer"].text)
        await expect(page.get_by_text("This page needs the access right.")).to_be_visible()
        for route, right in (("access/audit", "audit"), ("queues", "queues"), ("draft", "trace")):
            await page.goto(site.page(route))
            await expect(page.get_by_text(f"needs the {right} right")).to_be_visible()
        await expect(page.get_by_role("button", name="Try it")).to_have_count(0)
        await page.goto(site.page("profiles"))
        await expect(page.get_by_role("link", name="Try a message")).to_be_visible()
        await expect(page.get_by_role("link", name="Try a profile")).to_have_count(0)
        await page.goto(site.page("webhooks"))
        await expect(page.get_by_role("main").get_by_role("status").filter(has_text="webhooks")).to_be_visible()
        await flawless(page)


async def test_no_text_of_access_becomes_anything_else(there: tuple[Site, Guarded], open_page: OpenPage) -> None:
    site, people = there
    at = "2026-11-21T10:00:00Z"
    ends: dict[str, None] = dict.fromkeys(("expires_at", "revoked_at", "last_used_at"))
    keys = [
        {"id": f"K{n}", "principal": text, "label": text, "narrow": [text], "created_at": at, **ends}
        for n, text in enumerate(TEXTS)
    ]
    persons = [{"id": text, "name": text, "tenant": text, "kind": "user", "disabled": False} for text in TEXTS]
    roles = [{"name": text, "tenant": text, "rules": [text]} for text in TEXTS]
    lines = [
        {
            "at": at,
            "writer": text,
            "seq": n,
            "hash": "",
            "line": {"kind": text, "who": text, "device": text, text: text},
        }
        for n, text in enumerate(TEXTS)
    ]
    decision = {
        "allowed": False,
        "reason": TEXTS[0],
        "rule": TEXTS[1],
        "requires": 1,
        "limits": TEXTS,
        "nearest": TEXTS,
    }
    profiles = [
        {"name": text, "description": text, "methods": 1, "unknown": "sent", "events": [text], "presence": True}
        for text in TEXTS
    ]
    methods = [
        {"name": text, "title": text, "description": text, "danger": "high", "usual": text, "params": {text: text}}
        for text in TEXTS
    ]
    async with open_page(site.page()) as page:
        await log_in(page, people.keys["admin"].text)
        for path, member, rows, route in (
            ("keys", "keys", keys, "access/keys"),
            ("principals", "principals", persons, "access/people"),
            ("roles", "roles", roles, "access/roles"),
            ("audit", "lines", lines, "access/audit"),
        ):
            await answers(page, f"**/v1/{path}?*", {member: rows, "cursor": None})
            await page.goto(site.page(route))
            await expect(page.get_by_text(re.compile(rf"^{len(TEXTS)} \w+ shown$"))).to_be_visible()
            await expect(page.get_by_text("⟨U+202E⟩turned").first).to_be_visible()
            await harmless(page)
        await answers(page, "**/v1/access/check", decision)
        await page.goto(site.page("access/check"))
        await page.get_by_role("button", name="May they?").click()
        await expect(page.get_by_role("status", name="Decision")).to_contain_text(TEXTS[1])
        await harmless(page)
        await answers(page, "**/v1/profiles", {"profiles": profiles, "default": TEXTS[0]})
        await answers(page, "**/v1/profiles/*/methods", {"profile": "x", "unknown": "sent", "methods": methods})
        await page.goto(site.page("profiles"))
        await expect(page.get_by_text(f"{len(TEXTS)} profiles shown")).to_be_visible()
        await harmless(page)
        await page.goto(site.page("profiles/x"))
        for summary in (await page.locator("summary").all())[::9]:
            await summary.click()
        await harmless(page)


@IN_EVERY_LOOK
async def test_pages_of_access_and_profiles_are_accessible_and_fit(
    there: tuple[Site, Guarded], open_page: OpenPage, tmp_path: Path, size: str, theme: str
) -> None:
    site, people = there
    await has_keys(people)
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "has_touch": size == "phone"}
    async with open_page(site.page("access/keys"), **options) as page:
        await log_in(page, people.keys["admin"].text)
        for name, route, shown in (
            ("keys", "access/keys", page.get_by_text("keys shown")),
            ("people", "access/people", page.get_by_text("principals shown")),
            ("roles", "access/roles", page.get_by_text("roles shown")),
            ("check", "access/check", page.get_by_role("button", name="May they?")),
            ("audit", "access/audit", page.get_by_text(re.compile("lines? shown"))),
            ("profiles", "profiles", page.get_by_text("profiles shown")),
            ("profile", "profiles/dji", page.get_by_text("cover_open", exact=True)),
        ):
            await page.goto(site.page(route))
            await expect(shown).to_be_visible()
            if name == "keys":
                await page.get_by_text("New key", exact=True).click()
            if name == "profile":
                await page.locator("summary").first.click()
            await flawless(page)
            await page.screenshot(path=tmp_path / f"{name}-{theme}-{width}.png", full_page=True)


async def has_keys(people: Guarded) -> None:
    """Make a narrowed key, so that there is one to look at."""
    body = {"label": "nightly reports", "narrow": ["allow read *:* on *"]}
    made = await people.rig.http.post("/v1/keys", json=body, headers=people.headers("admin"))
    assert made.is_success, made.text
