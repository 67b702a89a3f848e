"""Sending from a form: what it shows, that it agrees with the server, and that a command is sent once."""

from __future__ import annotations

import ast
import asyncio
import json
import random
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from app.core.errors import InvalidInputError
from app.core.payload import JsonValue
from app.core.profiles.catalogue import Danger, Method, Openness
from app.core.profiles.profile import DeviceProfile
from app.profiles.loader import load_profiles
from tests.console.conftest import OpenPage
from tests.console.site import Site, site
from tests.console.test_looks import flawless
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

Schema = Mapping[str, Any]
PROFILES: Final[Mapping[str, DeviceProfile]] = load_profiles(shipped=("all",))
SCHEMAS: Final = [
    (name, one) for name, profile in PROFILES.items() for one in profile.catalogue.methods.values() if one.params
]
UNDESCRIBED: Final = {"double": "number", "float": "number", "int": "integer", "long": "integer", "boolean": "boolean"}
"""The kinds of members that a schema needs and says nothing else of."""
DEVICES: Final = {"sparkplug-b": "plant:node-1"}
ONE_WAY: Final = {"dji-drc"}
"""Profiles whose devices answer nothing, or nothing that names a command."""
SENT: Final = [
    *((name, 8 if name == "dji" else 1) for name, one in PROFILES.items() if one.catalogue.methods),
    pytest.param("dji", 1, marks=pytest.mark.long),
]
"""Shipped profiles, and which of their methods are sent: all of them; of the ninety of one every eighth."""
GENERATED: Final = 1000
EVERY_MS: Final = 10_000
"""After so long a page has asked again by itself."""
FAULTS: Final = """async (cases) => {
    const at = new URL(document.querySelector("link[rel=modulepreload]").href);
    const { faultsOf } = await import(new URL("form.js", at).href);
    return cases.map(([schema, value]) => faultsOf(schema, value).length === 0);
}"""
ODD: Final[tuple[JsonValue, ...]] = (None, True, 0, -1, 1.5, 1e9, "", "x", "é" * 3, [], [{}], {}, {"a": 1}, {"": None})


@pytest_asyncio.fixture(loop_scope="session")
async def there() -> AsyncIterator[Site]:
    async with site() as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lasting() -> AsyncIterator[Site]:
    async with site(profiles={"shipped": "all"}) as one:
        yield one


def fitting(schema: Schema, rand: random.Random) -> JsonValue:
    """A value that fits a schema, of those that catalogues use."""
    if "anyOf" in schema:
        one = rand.choice(schema["anyOf"])
        rest = {name: part for name, part in schema.items() if name != "anyOf"}
        return fitting({**rest, **one, "required": [*rest.get("required", ()), *one.get("required", ())]}, rand)
    if "enum" in schema:
        chosen: JsonValue = rand.choice(schema["enum"])
        return chosen
    low = schema.get("minimum", 0)
    match schema.get("type", "object"):
        case "string":
            return str("word" * max(1, schema.get("minLength", 1)))
        case "boolean":
            return rand.random() < 0.5
        case "integer":
            return rand.randint(low, schema.get("maximum", low + 1000))
        case "number":
            return round(rand.uniform(low, schema.get("maximum", low + 1000)), 2)
        case "array":
            return [
                fitting(schema.get("items", {"type": "string"}), rand) for _ in range(schema.get("minItems", 1) or 1)
            ]
    given = schema.get("properties", {})
    needed = {
        name: fitting(given.get(name, {"type": UNDESCRIBED.get(name, "string")}), rand)
        for name in schema.get("required", ())
    }
    return needed or ({"some": 1} if schema.get("minProperties") else {})


def broken(value: JsonValue, rand: random.Random) -> JsonValue:
    """The value with a part taken away, added or replaced, at any depth."""
    if isinstance(value, dict) and value and rand.random() < 0.85:
        name = rand.choice(list(value))
        rest = {key: one for key, one in value.items() if key != name}
        return rest if rand.random() < 0.25 else {**rest, name: broken(value[name], rand)}
    if isinstance(value, list) and value and rand.random() < 0.7:
        return [broken(value[0], rand), *value[1:]]
    if isinstance(value, int | float) and not isinstance(value, bool) and rand.random() < 0.6:
        return value + rand.choice((-1e6, -1, -0.5, 0.5, 1, 1e6))
    return rand.choice(ODD)


def is_accepted(method: Method, value: JsonValue) -> bool:
    assert method.check is not None
    try:
        method.check(value)
    except InvalidInputError:
        return False
    return True


def generated() -> Iterator[tuple[str, Method, JsonValue]]:
    rand = random.Random(17)
    for turn in range(GENERATED):
        name, method = SCHEMAS[turn % len(SCHEMAS)]
        value = fitting(method.params or {}, rand)
        yield name, method, value if turn // len(SCHEMAS) % 3 == 0 else broken(value, rand)


async def test_form_and_server_agree_on_params_of_every_method(lasting: Site, open_page: OpenPage) -> None:
    cases = list(generated())
    said = [is_accepted(method, value) for _, method, value in cases]
    assert 100 < sum(said) < len(said) - 100  # both happen
    assert len(cases) == GENERATED
    async with open_page(lasting.page("devices")) as page:
        await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
        found = await page.evaluate(FAULTS, [[method.params, value] for _, method, value in cases])
    differing = [
        (name, method.name, value, accepted)
        for (name, method, value), accepted, shown in zip(cases, said, found, strict=True)
        if accepted is not shown
    ]
    assert differing == []


async def fill(page: Page, params: Mapping[str, JsonValue], schema: Schema) -> None:
    """Type what the params are into their fields."""
    for name, value in params.items():
        field = page.locator(f"[name='{name}']")
        text = value if isinstance(value, str) and "enum" not in schema["properties"][name] else json.dumps(value)
        if await field.evaluate("(one) => one.tagName") == "SELECT":
            await field.select_option(json.dumps(value))
        else:
            await field.fill(str(text))


async def enter(page: Page, params: JsonValue, schema: Schema) -> None:
    """Type params into the form, or as JSON where it has no fields for them."""
    known: set[str] = set(schema.get("properties", {}))
    if isinstance(params, dict) and known >= {*params, *schema.get("required", ())} and known:
        await fill(page, params, schema)
        return
    if known >= set(schema.get("required", ())) and known:
        await page.get_by_label("as JSON").check()
    await page.get_by_label("Params as JSON").fill(json.dumps(params or {}))


@pytest.mark.parametrize(("profile", "every"), SENT)
async def test_the_form_of_every_method_of_a_shipped_profile_sends_what_the_server_takes(
    lasting: Site, open_page: OpenPage, profile: str, every: int
) -> None:
    rand, methods = random.Random(5), list(PROFILES[profile].catalogue.methods.values())[::every]
    device = DEVICES.get(profile, f"{profile}-1")
    async with open_page(lasting.page(f"devices/{device}/send?profile={profile}")) as page:
        for method in methods:
            await page.get_by_label("Method", exact=True).select_option(method.name)
            await enter(page, fitting(method.params or {}, rand), method.params or {})
            if profile in ONE_WAY:
                await page.get_by_label("one way").check()
            async with page.expect_response("**/commands") as answer:
                await page.get_by_role("button", name="Send", exact=True).click()
                if method.danger is Danger.HIGH:
                    await page.get_by_role("dialog").get_by_role("button", name="Send it to").click()
            response = await answer.value
            assert response.ok, (method.name, await response.text())
            await expect(page.get_by_role("heading", name=f"{method.name} on {device}")).to_be_visible()
            await page.go_back()
            await expect(page.get_by_label("Method", exact=True)).to_be_visible()
    sent = [one.method for one in lasting.rig.store.registrations]
    assert {one.name for one in methods} <= set(sent)


async def test_a_command_is_sent_and_followed_to_its_result(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("devices/drone-1")) as page:
        await expect(page.get_by_text("No command to it is on record")).to_be_visible()
        await page.keyboard.press("s")
        await page.get_by_label("Method", exact=True).fill("ok")
        await page.get_by_label("Params as JSON").fill('{"height": 9007199254740993}')
        await flawless(page)
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.get_by_text("It has succeeded.")).to_be_visible()
        assert there.rig.device.received[0]["params"] == {"height": 9007199254740993}
        await page.get_by_role("link", name="Send again as new …").click()
        await expect(page.get_by_label("Params as JSON")).to_have_value('{\n  "height": 9007199254740993\n}')
        await expect(page.get_by_label("Method", exact=True)).to_have_value("ok")
        await page.get_by_role("link", name="‹ drone-1").click()
        await expect(page.get_by_role("link", name="ok")).to_be_visible()


async def copied(page: Page, label: str) -> str:
    button = page.get_by_role("button", name=label)
    await button.click()
    await expect(button.get_by_text("copied")).to_be_visible()
    return str(await page.evaluate("() => navigator.clipboard.readText()"))


async def test_what_is_copied_is_what_is_sent(there: Site, open_page: OpenPage) -> None:
    wishes = {"profile": "homing", "timeout": "30s", "one_way": True, "hold": "8h"}
    asked = {"method": "ok", "params": {}, **wishes}
    clipboard = ["clipboard-read", "clipboard-write"]
    async with open_page(there.page("devices/drone-1/send"), permissions=clipboard) as page:
        await page.get_by_label("Method", exact=True).fill("ok")
        await page.get_by_label("Timeout").fill("30s")
        await page.get_by_label("one way").check()
        await page.get_by_label("If it is away").select_option("wait until it is back")
        await expect(page.get_by_label("for at most")).to_have_value("8h")
        await flawless(page)
        curl = shlex.split(await copied(page, "Copy as curl"))
        assert json.loads(curl[curl.index("--data-raw") + 1]) == asked
        calls = [one for one in ast.walk(ast.parse(await copied(page, "Python"))) if isinstance(one, ast.Call)]
        named = [{one.arg: ast.literal_eval(one.value) for one in call.keywords} for call in calls]
        assert wishes in named
        words = shlex.split(await copied(page, "CLI"))
        assert " ".join(words[4:]) == "--profile homing --timeout 30s --one-way --hold 8h --params {} -- drone-1 ok"
        async with page.expect_request("**/v1/devices/drone-1/commands") as sent:
            await page.get_by_role("button", name="Send", exact=True).click()
        assert (await sent.value).post_data_json == asked


async def test_what_the_form_finds_wrong_is_at_its_field_and_nothing_is_sent(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("devices/dock-1/send?profile=dji")) as page:
        await page.get_by_label("Method", exact=True).select_option("takeoff_to_point")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.locator("[name='flight_id']")).to_be_focused()
        await expect(page.locator("#param-flight_id-hint")).to_contain_text("is needed")
        await page.locator("[name='flight_id']").fill("f-1")
        await expect(page.locator("[name='flight_id']")).not_to_have_attribute("aria-invalid", "true")
        await page.locator("[name='target_height']").fill("high")
        await expect(page.locator("#param-target_height-hint")).to_contain_text("is no number")
        await page.locator("[name='target_height']").fill("1.5")
        await expect(page.locator("#param-target_height-hint")).to_contain_text("is less than 2")
        await flawless(page)
        await page.get_by_label("as JSON").check()
        await page.get_by_label("Params as JSON").fill('{\n "a": 1,\n "b": }')
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.get_by_text("is no JSON")).to_be_visible()
    assert there.rig.store.registrations == []


async def test_danger_is_asked_about_and_no_is_the_answer_at_hand(there: Site, open_page: OpenPage) -> None:
    assert PROFILES["dji"].catalogue.methods["device_reboot"].danger is Danger.HIGH
    async with open_page(there.page("devices/dock-1/send?profile=dji")) as page:
        await page.get_by_label("Method", exact=True).select_option("device_reboot")
        await page.get_by_role("button", name="Send", exact=True).click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("on dock-1?")
        await expect(dialog.get_by_role("button", name="No")).to_be_focused()
        await flawless(page)
        await page.keyboard.press("Enter")
        await expect(dialog).to_have_count(0)
        assert there.rig.store.registrations == []


async def test_a_double_click_and_a_broken_connection_are_one_command(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("devices/drone-1/send")) as page:
        await page.get_by_label("Method", exact=True).fill("ok")
        answered = 0

        async def lose(route: Any) -> None:  # noqa: ANN401 - playwright's
            nonlocal answered
            answered += 1
            if answered > 1:
                await route.continue_()
            else:
                await route.fetch()  # the node has it, and its answer is lost
                await route.abort()

        await page.route("**/v1/devices/drone-1/commands", lose)
        await page.get_by_role("button", name="Send", exact=True).dblclick()
        await expect(page.get_by_role("alert")).to_contain_text("The node does not answer")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.get_by_text("It has succeeded.")).to_be_visible()
    assert len(there.rig.device.received) == 1


async def test_what_the_node_refuses_is_said_where_it_belongs(there: Site, open_page: OpenPage) -> None:
    async with open_page(there.page("devices/dock-1/send?profile=dji")) as page:
        await page.get_by_label("Method", exact=True).select_option("cover_open")
        await page.get_by_label("Timeout").fill("soon")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("timeout")
        await page.get_by_label("Timeout").fill("")
        await page.get_by_label("Method", exact=True).select_option("")
        await page.get_by_label("Name of the method").fill("cover_opne")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("did you mean cover_open?")
    assert PROFILES["dji"].catalogue.openness is Openness.GUARDED
    assert there.rig.store.registrations == []


async def fail_once(page: Page, path: str) -> None:
    """Abort the first request for this path."""
    failed = asyncio.Event()

    async def fail(route: Route) -> None:
        if failed.is_set():
            await route.continue_()
        else:
            failed.set()
            await route.abort()

    await page.route(path, fail)


@pytest.mark.parametrize("path", ["v1/profiles", "v1/profiles/dji/methods", "v1/devices/dock-1"])
async def test_the_form_comes_by_itself_where_one_request_has_had_no_answer(
    there: Site, open_page: OpenPage, path: str
) -> None:
    async with open_page(there.page("nodes")) as page:
        await fail_once(page, f"**/{path}")
        await page.goto(there.page("devices/dock-1/send?profile=dji"))
        await expect(page.get_by_role("alert")).to_contain_text("The node does not answer")
        await expect(page.get_by_label("Method", exact=True)).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("script", ["pages/send.js", "params.js"])
async def test_a_page_comes_by_itself_whose_script_or_part_of_it_did_not_come(
    there: Site, open_page: OpenPage, script: str
) -> None:
    async with open_page(f"{there.url}/v1/me") as page:
        await page.clock.install()
        await fail_once(page, f"**/console/*/{script}")
        await page.goto(there.page("devices/dock-1/send?profile=dji"))
        await expect(page.get_by_role("heading", name="This page cannot be loaded")).to_be_visible()
        await page.clock.fast_forward(EVERY_MS)
        await expect(page.get_by_label("Method", exact=True)).to_be_visible()


async def test_the_menu_comes_by_itself_where_the_node_did_not_say_who_asks(there: Site, open_page: OpenPage) -> None:
    async with open_page(f"{there.url}/healthz") as page:
        await page.clock.install()
        await fail_once(page, "**/v1/me")
        await page.goto(there.page("commands"))
        await expect(page.get_by_role("alert")).to_contain_text("The node does not answer")
        await expect(page.get_by_role("link", name="Nodes")).to_have_count(0)
        await page.clock.fast_forward(EVERY_MS)
        await expect(page.get_by_role("link", name="Nodes")).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)
