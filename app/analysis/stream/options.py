"""What `homing analyze --follow` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.core.errors import ConfigurationError

WINDOW: Final = timedelta(minutes=1)
SHORT_BURN: Final = timedelta(minutes=5)
LONG_BURN: Final = timedelta(hours=1)
FOLDER: Final = "stream"
"""In OUT; everything of the stream lies in it."""


@dataclass(frozen=True, slots=True)
class Bands:
    """When an alert is raised. A threshold that is given holds for all methods; else the band is learned."""

    p99: timedelta | None = None
    timeout_share: float | None = None
    objective: float = 0.99
    """The SLO: share of the commands that the device answers before their deadline."""
    burn: float = 14.4
    """A burn rate over the last 5 minutes and over the last hour that calls somebody.

    14.4 spends 2 % of a budget of 30 days in an hour (Google, The Site Reliability Workbook, 2018, chapter 5).
    """
    history: int = 60
    """Windows that a band is learned from, at most."""
    least_history: int = 15
    """Windows that there must be before anything is judged by a learned band."""
    least_records: int = 30
    """Commands in a window that is judged."""

    def check(self) -> None:
        """ConfigurationError names the option that is wrong and what is allowed."""
        for name, value, low, high in (
            ("--alert-timeout-share", self.timeout_share, 0.0, 1.0),
            ("--slo", self.objective, 0.0, 1.0),
            ("--burn", self.burn, 0.0, 1e6),
        ):
            if value is not None and not low < value < high:
                raise ConfigurationError(f"{name} is {value:g}; allowed: over {low:g} and under {high:g}")
        if self.p99 is not None and self.p99 <= timedelta():
            raise ConfigurationError("--alert-p99 must be longer than 0s")


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """One run."""

    log: str
    out: Path
    master: str | None = None
    lateness: timedelta = timedelta(minutes=2)
    """The watermark: how far behind the latest record another may be and still count. Longer than nodes gather for."""
    trigger: timedelta = timedelta(seconds=10)
    """How often the folder is looked at."""
    once: bool = False
    """Take what is there, and stop."""
    webhook: str | None = None
    """Where alerts are sent; to the log when None."""
    bands: Bands = field(default_factory=Bands)
    max_files: int = 1000
    """Files that are taken at once; bounds memory when there are months to catch up with."""

    def check(self) -> None:
        """ConfigurationError names the option that is wrong and what is allowed."""
        self.bands.check()
        if (self.master or "").startswith("sc://"):
            raise ConfigurationError("--follow: not by Spark Connect, whose server would do what is done here")
        if not timedelta() <= self.lateness <= timedelta(days=1):
            raise ConfigurationError("--lateness: allowed: 0s to 24h")
        if not timedelta(milliseconds=100) <= self.trigger <= timedelta(hours=1):
            raise ConfigurationError("--every: allowed: 100ms to 1h")
        if self.webhook is not None:
            parts = urlsplit(self.webhook)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise ConfigurationError(
                    f"--webhook: {self.webhook[:64]!a} is no address; allowed: http://… or https://…"
                )
        if "://" not in self.log and not Path(self.log).is_dir():
            raise ConfigurationError(f"{self.log}: no such folder of a latency log")
