"""The console in a real Chromium: one browser for the whole run, and a fresh context for each page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Request, async_playwright

from tests.chromium import chromium_binary
from tests.waiting import PATIENCE

FLAGS = ("--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")

OpenPage = Callable[..., AbstractAsyncContextManager[Page]]
"""Opens a page in a browser of its own, at this URL."""


class Watched:
    """The misdeeds of a page: errors, violations of its policy, requests to other hosts."""

    def __init__(self, page: Page) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self._frame = page.main_frame
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("console", self._hear)
        page.on("request", self._see)
        page.on("dialog", lambda dialog: self.said.append(f"a dialog: {dialog.message}"))

    def _hear(self, message: Any) -> None:  # noqa: ANN401 - playwright's
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.said.append(message.text)

    def _see(self, request: Request) -> None:
        if not (request.is_navigation_request() and request.frame == self._frame):
            self.asked.append(request.url)

    def strangers(self, url: str) -> list[str]:
        """Requests to any other host; a person who goes there is none of the page's."""
        own = urlsplit(url).netloc
        return [one for one in self.asked if urlsplit(one).scheme in ("http", "https") and urlsplit(one).netloc != own]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Chromium, once for all tests of a worker."""
    chromium = chromium_binary()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(FLAGS), chromium_sandbox=False)
        yield browser
        await browser.close()


@pytest.fixture
def open_page(browser: Browser) -> OpenPage:
    """Opens pages; at the end none may have met an error, broken its policy or asked another host."""

    @asynccontextmanager
    async def opened(url: str, **options: Any) -> AsyncIterator[Page]:
        context = await browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(PATIENCE * 1000)
        page = await context.new_page()
        watched = Watched(page)
        try:
            await page.goto(url)
            yield page
            assert (watched.said, watched.strangers(url)) == ([], [])
        finally:
            await context.close()

    return opened
