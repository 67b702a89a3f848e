"""Measures the console in a real Chromium (C1, C10): `python -m tests.console.figures [--seconds 60]`.

First how soon *Home* is there, from this machine and over a slow line, with nothing kept and with all files kept. Then
200 commands are open, and 50 of them change in a second: what that costs the browser, and how large its heap becomes.
Then a value of 128 KiB is opened. Exit code: 0 all aims are reached, 1 one is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from time import perf_counter
from typing import Final

from playwright.async_api import Browser, CDPSession, Page, async_playwright, expect

from homing_rig.figures.kit import MIB, Findings, paced
from tests.console.conftest import FLAGS
from tests.console.site import LONG, Site, site
from tests.services import find_binary
from tests.waiting import PATIENCE

ROWS: Final = 200
CHANGES: Final = 50.0
WARM: Final = 10.0
"""Seconds of changes after which the page has made what it keeps."""
LARGE: Final = 128 * 1024
BIG: Final = "9007199254740993"
"""The least whole number above 2^53 that a number of JavaScript cannot be."""
SLOW: Final = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 200_000}
"""A line of 1.6 Mbit/s on which each request waits for 150 ms."""
PAINTS: Final = """() => {
    globalThis.shifted = 0;
    globalThis.shown = null;
    new PerformanceObserver((list) => {
        for (const one of list.getEntries()) if (!one.hadRecentInput) globalThis.shifted += one.value;
    }).observe({ type: "layout-shift", buffered: true });
    new MutationObserver((_, observer) => {
        if (!document.querySelector(".headline")) return;
        globalThis.shown = performance.now();
        observer.disconnect();
    }).observe(document, { childList: true, subtree: true });
}"""
PAINTED: Final = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
ASKED: Final = """() => 1 + performance.getEntriesByType("resource")
    .filter((one) => one.startTime < globalThis.shown).length"""
"""The requests for files and data until Home is there; the first one is for the page itself."""
OBSERVE: Final = """() => {
    globalThis.longest = 0;
    new PerformanceObserver((list) => {
        for (const one of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, one.duration);
    }).observe({ entryTypes: ["longtask"] });
}"""


async def opening(findings: Findings, there: Site, browser: Browser, name: str, most: dict[str, float]) -> None:
    """Open Home with nothing kept by the browser, and once more with what it kept; `most` are the aims, in ms."""
    context = await browser.new_context()
    page = await context.new_page()
    if name != "loopback":
        session = await context.new_cdp_session(page)
        await session.send("Network.enable")
        await session.send("Network.emulateNetworkConditions", SLOW)
    await page.add_init_script(f"({PAINTS})()")
    for kept in ("cold", "warm"):
        await page.goto("about:blank")
        await page.goto(there.page())
        await expect(page.locator(".headline")).to_be_visible()
        await page.wait_for_function(f"() => ({PAINTED})() !== null")
        about = f"{name}, {kept}"
        findings.figure(f"{about}: something is painted after", await page.evaluate(PAINTED), " ms", most=most["paint"])
        shown = await page.evaluate("() => globalThis.shown")
        findings.figure(f"{about}: Home with its data is there after", shown, " ms", most=most[kept])
        findings.figure(f"{about}: requests until then", await page.evaluate(ASKED), most=20)
        shifted = await page.evaluate("() => globalThis.shifted")
        findings.figure(f"{about}: shift of the layout", shifted, most=0.02)
    await context.close()


async def measured(session: CDPSession) -> dict[str, float]:
    """The metrics of the page, after its rubbish was collected."""
    await session.send("HeapProfiler.collectGarbage")
    found = await session.send("Performance.getMetrics")
    return {one["name"]: one["value"] for one in found["metrics"]}


async def change(there: Site, commands: list[str], seconds: float) -> None:
    """Have devices report progress of each in turn."""
    async for number in paced(CHANGES, round(CHANGES * seconds)):
        await there.progress(commands[number % ROWS], number // ROWS % 100)


async def changes(findings: Findings, there: Site, page: Page, seconds: float) -> None:
    """Rows that change, on the page of all commands."""
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    made = [await there.send("fly", timeout=LONG) for _ in range(ROWS)]
    await page.goto(there.page("commands"))
    await page.get_by_role("button", name="Older").click()
    await expect(page.locator("[data-row]")).to_have_count(ROWS)
    await change(there, made, WARM)
    await page.evaluate(OBSERVE)
    before, began = await measured(session), perf_counter()
    await change(there, made, seconds)
    took = perf_counter() - began
    after = await measured(session)
    used = (after["TaskDuration"] - before["TaskDuration"]) / took * 100
    grown = (after["JSHeapUsedSize"] / before["JSHeapUsedSize"] - 1) * 100
    findings.note(f"{ROWS} rows, {CHANGES * seconds / took:.0f} changes/s for {took:.0f} s")
    findings.figure("main thread of the page", used, " % of a core", most=15)
    findings.figure("longest task (0: none of 50 ms)", await page.evaluate("() => globalThis.longest"), " ms", most=100)
    findings.figure("heap at the end", after["JSHeapUsedSize"] / MIB, " MiB")
    findings.figure("growth of the heap", grown, " %", least=-10, most=10)


async def large(findings: Findings, there: Site, page: Page) -> None:
    """A value of 128 KiB, and a number that JavaScript has not."""
    value = f'{{"number":{BIG},"text":"{"x" * LARGE}"}}'
    topic = '"topic":"homing/dock-1/event","at":"2026-01-01T00:00:00Z"'
    body = f'{{"device_id":"dock-1","presence":null,"values":[{{{topic},"data":{value}}}]}}'
    await page.route("**/v1/devices/dock-1/state", lambda route: route.fulfill(body=body))
    await page.goto(there.page("devices/dock-1"))
    summary = page.locator(".values summary")
    await expect(summary).to_be_visible()
    began = perf_counter()
    await summary.click()
    shown = page.get_by_role("region", name="homing/dock-1/event")
    await expect(shown).to_contain_text(BIG)
    findings.figure("a value of 128 KiB is open after", (perf_counter() - began) * 1000, " ms", most=200)


async def figures(findings: Findings, seconds: float) -> None:
    """Measure all of it in one browser, on a node in this process."""
    chromium = find_binary("chromium", package="chromium")
    async with site() as there, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(FLAGS), chromium_sandbox=False)
        await opening(findings, there, browser, "loopback", {"paint": 300, "cold": 600, "warm": 600})
        await opening(findings, there, browser, "1.6 Mbit/s, 150 ms", {"paint": 2500, "cold": 2500, "warm": 1000})
        page = await browser.new_page()
        await changes(findings, there, page, seconds)
        await large(findings, there, page)
        await browser.close()


def main() -> int:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long rows change")
    findings = Findings("The console in a browser", print)
    expect.set_options(timeout=PATIENCE * 1000)
    asyncio.run(figures(findings, parser.parse_args().seconds))
    return 0 if findings.reached else 1


if __name__ == "__main__":
    sys.exit(main())
