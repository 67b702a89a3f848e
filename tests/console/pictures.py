"""Makes the pictures of docs/console.md: `python -m tests.console.pictures FOLDER [--all]`.

With `--all` it makes pictures of all pages, light and dark, on a desktop and a phone, to be looked at.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from tests.console.conftest import FLAGS
from tests.console.site import ALARMS, EVENTS, Site, furnished, furnished_fleets, furnished_queues, site
from tests.services import find_binary

SIZES = {"desktop": (1280, 800), "phone": (360, 740)}
SETTLED_MS = 400
"""Placeholders and buttons have faded in."""


async def picture(browser: Browser, there: Site, route: str, path: Path, *, size: str, theme: str) -> None:
    """Make one."""
    width, height = SIZES[size]
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if theme == "dark" else "light"
    )
    page = await context.new_page()
    await page.goto(there.page(route))
    await page.locator("h1, .headline").first.wait_for(state="attached")
    await page.locator(".headline, [data-row], .card, main form").first.wait_for()
    await page.wait_for_timeout(SETTLED_MS)
    await page.screenshot(path=path, full_page=size == "phone")
    await context.close()


async def make(folder: Path, *, every: bool) -> None:
    """Make them."""
    folder.mkdir(parents=True, exist_ok=True)
    async with site(events=EVENTS) as there, async_playwright() as playwright:
        chromium = find_binary("chromium", package="chromium")
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(FLAGS), chromium_sandbox=False)
        made = await furnished(there)
        await there.progress(made["open"], 62)
        await there.until(made["open"], final=False)
        routes = {"home": "", "commands": "commands", "command": f"commands/{made['silent']}"}
        if every:
            await furnished_queues(there)
            routes |= {"open": f"commands/{made['open']}", "nodes": "nodes"}
            runs = await furnished_fleets(there)
            await there.send("cover_open", device="dock-7", hold="8h")
            routes |= {"fleets": "fleets", "fleet": f"fleets/{runs['paused']}", "new-fleet": "fleets/new"}
            routes |= {"held": "held", "latency": "latency", "profiles": "profiles", "profile": "profiles/dji"}
            routes |= {"traffic": "traffic", "try": "try", "draft": "draft"}
            routes |= {"devices": "devices", "device": "devices/dock-7", "send": "devices/dock-7/send?profile=dji"}
            nightly = {"cron": "0 3 * * *", "device": "dock-7", "command": {"method": "cover_close"}}
            assert (await there.rig.http.put("/v1/schedules/nightly", json=nightly)).is_success
            routes |= {"schedules": "schedules"}
            routes |= {"queues": "queues", "queue": f"queues/{ALARMS}", "events": "events?from=-1h"}
        for name, route in routes.items():
            for size in SIZES if every else ("desktop",):
                for theme in ("light", "dark") if every else ("light",):
                    suffix = f"-{size}-{theme}" if every else ""
                    path = folder / f"console-{name}{suffix}.png"
                    await picture(browser, there, route, path, size=size, theme=theme)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]), every="--all" in sys.argv))
