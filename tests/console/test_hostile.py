"""Texts that attack, in every place of the console where a text of others is shown."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from app.core.messages import Publication
from tests.api.rig import DEVICE
from tests.console.conftest import OpenPage
from tests.console.site import Site, answers, site
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

TEXTS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    '"><b id=x>',
    "' onmouseover='alert(1)",
    "</title><script>",
    "<!--",
    "]]>",
    "{{7*7}}",
    "${alert(1)}",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "&lt;b&gt; &#60;",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content=0>",
    "<style>*{display:none}</style>",
    "<form id=app><input name=app></form>",
    "\u202eturned\u202c",
    "\u2066isolated\u2069",
    "zero\u200bwidth",
    "soft\u00adhyphen",
    "\x1b[2J\x1b[31m",
    "\r\nSet-Cookie: a=b",
    "id: 1\nevent: outcome\ndata: {}\n\n",
    '=HYPERLINK("//evil.example")',
    "'; rm -rf / #",
    "`id`",
    "$(id)",
    "%00 ..%2f %252e",
    "#/commands/x",
    "e" + "\u0301" * 200,
    "d\u043e\u0441k-1",
    "-0 1e400 NaN",
    "x" * 4096,
    "\u4e2d\u6587" * 500,
)
KEYS = ("__proto__", "constructor", "toString", "hasOwnProperty", "<b>", "")
NUMBERS = '{"big":9007199254740993,"minus":-0.0}'
DEVICES = ("<img src=x onerror=alert(1)>", '"><b id=x>', "d\u043e\u0441k-1", "'; rm -rf & `id` (id)", "{{7}}")
ELEMENTS = """() => [...document.querySelectorAll("*")].filter((one) =>
    ["SCRIPT", "IMG", "SVG", "BASE", "STYLE", "B", "IFRAME", "OBJECT"].includes(one.tagName.toUpperCase())
    && !(one.tagName === "SCRIPT" && one.getAttribute("src") === "boot.js")
    && !(one.matches("dl.hour > div > dd > svg")
        && one.getAttributeNames().sort().join() === "aria-hidden,class,focusable,height,viewBox,width"
        && one.getAttribute("class") === "spark"
        && /^<polyline points="[0-9., ]+"><\\/polyline>$/.test(one.innerHTML))
    || one.tagName === "META" && one.httpEquiv
    || [...one.attributes].some((attribute) => attribute.name.startsWith("on") || attribute.name === "style")
).map((one) => one.outerHTML.slice(0, 100))"""
WIDTHS = (360, 1280)
SIDEWAYS = "() => document.documentElement.scrollWidth > innerWidth"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def attacked() -> AsyncIterator[tuple[Site, str, str]]:
    """A node whose commands have hostile params, results, errors, progress; and the ids of two of them."""
    async with site() as there:
        everything = {**{name: list(TEXTS) for name in KEYS}, "numbers": 1}
        raw = json.dumps(everything).replace('"numbers": 1', f'"numbers": {NUMBERS}')
        good = await there.send("good", everything)
        await there.answer(good, f'"status":"ok","result":{raw}')
        for text in TEXTS:
            bad = await there.send("bad", {"text": text})
            error = json.dumps({"code": text[:256], "message": text})
            await there.answer(bad, f'"status":"error","error":{error}')
        for device in DEVICES:
            path = f"/v1/devices/{quote(device, safe='')}/commands"
            body = {"method": "bad", "timeout": "50ms"}
            answer = await there.rig.http.post(path, json=body)
            assert answer.status_code in {200, 504}, answer.text
        running = await there.send("running", everything)
        progress = f'{{"id":"{running}","status":"running","progress":{{"percent":50,"step":{raw}}}}}'
        _ = there.rig.device.client.publish(Publication(f"homing/{DEVICE}/response", progress.encode()))
        await there.until(running, final=False)
        yield there, good, running


async def harmless(page: Page) -> None:
    """Texts are texts, and stay within the page, on a phone and on a desktop. The scripts do not know which it is."""
    found = page.viewport_size
    assert found is not None
    assert await page.evaluate(ELEMENTS) == []
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 740})
        assert await page.evaluate(SIDEWAYS) is False, width
    await page.set_viewport_size(found)
    assert "\u202e" not in await page.locator("body").inner_text()


async def test_no_text_becomes_anything_else(attacked: tuple[Site, str, str], open_page: OpenPage) -> None:
    there, good, running = attacked
    async with open_page(there.page()) as page:
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        await harmless(page)
        await page.goto(there.page("commands"))
        await expect(page.get_by_text(f"{len(TEXTS) + len(DEVICES) + 2} commands shown")).to_be_visible()
        await expect(page.get_by_text("<svg onload=alert(1)>").first).to_be_visible()
        await expect(page.get_by_text("⟨U+202E⟩turned").first).to_be_visible()
        await expect(page.get_by_text("&lt;b&gt; &#60;").first).to_be_visible()
        await harmless(page)
        await page.goto(there.page(f"commands/{good}"))
        for part in ("Result", "Params"):
            await page.locator("summary").get_by_text(part, exact=True).click()
        await page.get_by_role("button", name="Show all").first.click()
        result = page.get_by_role("region", name="Result")
        for shown in ('"__proto__"', '"big": 9007199254740993', '"minus": -0.0'):
            await expect(result).to_contain_text(shown)
        await harmless(page)
        await page.goto(there.page(f"commands/{running}"))
        await expect(page.get_by_role("progressbar")).to_have_attribute("value", "50")
        await harmless(page)


async def test_no_text_of_a_device_becomes_anything_else(attacked: tuple[Site, str, str], open_page: OpenPage) -> None:
    there, good, _ = attacked
    async with open_page(there.page("devices")) as page:
        for device in DEVICES:
            await page.goto(there.page(f"devices/{quote(device, safe='')}"))
            await expect(page.get_by_role("link", name="bad").first).to_be_visible()
            await harmless(page)
        await page.goto(there.page(f"devices/{DEVICE}/send?again={good}"))
        await expect(page.get_by_label("Params as JSON")).to_have_value(re.compile("hasOwnProperty"))
        await harmless(page)
        for text in TEXTS:
            await page.goto(
                there.page(f"devices/{quote(text[:200], safe='')}/send?profile={quote(text[:40], safe='')}")
            )
            await expect(page.get_by_role("heading", level=1)).to_contain_text("Send to")
            await harmless(page)


async def test_numbers_stay_as_they_were_written(there_open: Site, open_page: OpenPage) -> None:
    text = '{"a":9007199254740993,"b":-0,"c":1e400,"d":20.50,"e":[1,2.5]}'
    async with open_page(there_open.page()) as page:
        written = await page.evaluate(
            """async (text) => {
                const at = new URL(document.querySelector("link[rel=modulepreload]").href);
                const { parse, written } = await import(new URL("api.js", at).href);
                return [written(parse(text)), String(parse("314000.0"))];
            }""",
            text,
        )
    assert written == [text, "314000.0"]


async def test_no_text_of_an_error_becomes_anything_else(attacked: tuple[Site, str, str], open_page: OpenPage) -> None:
    there, _, _ = attacked
    listed = (await there.rig.http.get("/v1/commands?state=failed&limit=100")).json()["commands"]
    async with open_page(there.page()) as page:
        for one in listed[::6]:
            await page.goto(there.page(f"commands/{one['id']}"))
            await expect(page.get_by_role("heading", name="What happened")).to_be_visible()
            await harmless(page)
        await page.goto(there.page("commands/%3Cimg%20src=x%20onerror=alert(1)%3E"))
        await expect(page.get_by_role("alert")).to_be_visible()
        await harmless(page)
        detail = json.dumps({"title": TEXTS[0], "detail": TEXTS[1], "status": 500})
        for path in ("**/v1/overview", "**/v1/overview/events"):
            await page.route(path, lambda route: route.fulfill(status=500, body=detail))
        await page.goto(there.page("nodes"))
        await expect(page.get_by_role("alert")).to_contain_text(TEXTS[1])
        await harmless(page)


async def test_a_copied_request_reaches_curl_byte_for_byte(
    attacked: tuple[Site, str, str], open_page: OpenPage, tmp_path: Path
) -> None:
    there, good, _ = attacked
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\nfor one in "$@"; do printf "%s\\0" "$one"; done\n', "utf-8")
    curl.chmod(0o755)
    async with open_page(there.page(f"commands/{good}"), permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.get_by_role("button", name="Copy as curl").click()
        await expect(page.get_by_text("copied")).to_be_visible()
        copied = await page.evaluate("() => navigator.clipboard.readText()")
    shell = ["/bin/sh", "-c", copied]
    printed = subprocess.run(shell, check=True, capture_output=True, env={"PATH": str(tmp_path), "HOMING_KEY": "k"})
    arguments = printed.stdout.decode().split("\0")
    params = json.loads(arguments[arguments.index("--data-raw") + 1])["params"]
    assert params["<b>"] == list(TEXTS)
    assert arguments[1] == f"{there.url}/v1/devices/{DEVICE}/commands"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"},
    ],
    ids=["origin", "null origin", "rebinding", "cross-site"],
)
async def test_what_a_foreign_page_sends_is_not_obeyed(there_open: Site, headers: dict[str, str]) -> None:
    command = await there_open.send("fly")
    async with httpx.AsyncClient(base_url=there_open.url) as outside:
        refused = await outside.post(f"/v1/commands/{command}/cancel", headers=headers)
    assert refused.status_code in {403, 421}
    assert (await there_open.rig.http.get(f"/v1/commands/{command}")).json()["finished_at"] is None


async def test_no_page_can_frame_the_console(there_open: Site, open_page: OpenPage) -> None:
    async with open_page(there_open.page()) as page:
        await expect(page.get_by_role("region", name="Verdict")).to_be_visible()
        response = await page.request.get(f"{there_open.url}/console/")
        assert response.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


@pytest_asyncio.fixture(loop_scope="session")
async def there_open() -> AsyncIterator[Site]:
    async with site() as one:
        yield one


def hostile_explanation(found: dict[str, Any]) -> dict[str, Any]:
    """An explanation in which probes, interlocks, devices and nodes say all of it."""
    step = dict.fromkeys(("node", "what", "topic", "reason"))
    steps = [{**dict.fromkeys(step, text), "at": None, "bytes": None} for text in TEXTS]
    misses = [{**dict.fromkeys((*step, "got", "profile"), text), "at": None} for text in TEXTS]
    names = {name: " ".join(TEXTS) for name in ("home_node", "profile", "method", "device_id", "matched_by")}
    said = {"code": TEXTS[0], "message": " ".join(TEXTS), "interlock": {text: [text] for text in TEXTS}}
    return {
        "command": {**found["command"], **names, "error": said, "late": said},
        "verdict": {"code": TEXTS[0], "text": " ".join(TEXTS), "evidence": list(TEXTS)},
        "timeline": steps,
        "misses": misses,
        "heard": misses,
        "gaps": list(TEXTS),
        "presence": None,
    }


async def test_no_text_of_an_explanation_becomes_anything_else(
    attacked: tuple[Site, str, str], open_page: OpenPage
) -> None:
    there, good, _ = attacked
    found = (await there.rig.http.get(f"/v1/commands/{good}/explain")).json()
    async with open_page(there.page()) as page:
        await answers(page, f"**/v1/commands/{good}/explain", hostile_explanation(found))
        await page.goto(there.page(f"commands/{good}"))
        await expect(page.get_by_role("heading", name="What nobody can know any more")).to_be_visible()
        await expect(page.get_by_text("⟨U+202E⟩turned").first).to_be_visible()
        await harmless(page)


async def test_no_text_of_an_overview_becomes_anything_else(
    attacked: tuple[Site, str, str], open_page: OpenPage
) -> None:
    there, _, _ = attacked
    found = (await there.rig.http.get("/v1/overview")).json()
    (node,), (group, *_) = found["nodes"], found["trouble"]
    full = {"name": TEXTS[0], "size": 1, "bound": 2}
    found |= {
        "verdict": {"party": "homing", "text": " ".join(TEXTS), "since": None},
        "nodes": [
            {**node, "node_id": text, "checks": {text: text}, "fullest": full, "version": text} for text in TEXTS
        ],
        "trouble": [{**group, "profile": text, "method": text, "code": text} for text in TEXTS],
        "open_commands": [{**found["open_commands"][0], "id": text, "home_node": text} for text in TEXTS[:12]],
    }
    told = f"event: overview\ndata: {json.dumps(found)}\n\n"
    async with open_page(there.page("nowhere")) as page:
        await page.route(
            "**/v1/overview/events", lambda route: route.fulfill(body=told, content_type="text/event-stream")
        )
        await page.goto(there.page())
        await expect(page.get_by_text("⟨U+202E⟩turned").first).to_be_visible()
        await harmless(page)
        await page.goto(there.page("nodes"))
        await expect(page.get_by_role("article")).to_have_count(len(TEXTS))
        await harmless(page)
