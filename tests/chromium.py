"""The browser of the tests."""

from __future__ import annotations

import shutil

from tests.services import find_binary


def chromium_binary() -> str:
    """The path of Chromium without a window to draw, where it is installed, or else of Chromium."""
    return shutil.which("chromium-headless-shell") or find_binary("chromium", package="chromium")
