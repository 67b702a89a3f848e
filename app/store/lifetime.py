"""The life of what keeps connections, files or threads."""

from __future__ import annotations

from typing import Protocol


class Lifetime(Protocol):
    """Start it first, close it in the end."""

    async def start(self) -> None:
        """Return when it may be used; ConfigurationError says what keeps it from that for good."""

    async def close(self) -> None:
        """Let go of everything; waiting calls fail with the error that says that it is unavailable."""
