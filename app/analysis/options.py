"""The options of `homing analyze`, `compact`, `rollup` and `report`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final

from app.analysis.deadlines import DeadlineOptions
from app.analysis.session import MEMORY
from app.core.commands.deadlines import group_rule
from app.core.errors import ConfigurationError

GROUP_PATTERN: Final = r"^(.*?)[-_.:/]?[0-9]*$"
"""A device's group is its id without the number at its end: dock-fw2-00017 is of dock-fw2."""
DAY: Final = timedelta(days=1)
DAYS_AT_ONCE: Final = 31


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """`log` and `out` are folders or URLs that Hadoop knows; days are of UTC, `end` is exclusive.

    `log` and `events`, the cold tier of the event log, are only read by the step compact; `again` makes days anew that
    are there already.
    """

    out: str
    log: str = ""
    events: str = ""
    steps: tuple[str, ...] = ("compact", "rollup", "report")
    begin: date | None = None
    end: date | None = None
    compare_to: date | None = None
    again: bool = False
    max_pending: int = 20_000  # as HOMING_COMMAND_MAX_PENDING is unless set
    level: float = 0.001
    success: float = 0.95
    """Share of the commands, cancelled ones apart, that ought to succeed whatever others do."""
    device_group: str = GROUP_PATTERN
    master: str | None = None
    memory: str = MEMORY
    days_at_once: int = DAYS_AT_ONCE
    """The most days that one job of Spark takes."""
    deadlines: DeadlineOptions = field(default_factory=DeadlineOptions)

    def __post_init__(self) -> None:
        """ConfigurationError names the option, and what is allowed."""
        if self.begin and self.end and self.begin >= self.end:
            raise ConfigurationError(f"--to {self.end}: must be after --from")
        if self.compare_to and (self.begin is None or self.compare_to >= self.begin):
            raise ConfigurationError("--compare-to: needs --from, and must be before it")
        if not 0 < self.level < 1:
            raise ConfigurationError(f"--level is {self.level:g}; allowed: over 0, under 1")
        if not 0 <= self.success < 1:
            raise ConfigurationError(f"--success is {self.success:g}; allowed: 0 or more, under 1")
        if self.max_pending < 1:
            raise ConfigurationError(f"--max-pending is {self.max_pending}; allowed: 1 or more")
        try:
            group_rule(self.device_group)
        except ValueError as error:
            raise ConfigurationError(f"--device-group: {error}") from None

    @property
    def first(self) -> date | None:
        """The first day that is needed: for a report with the period before, when there is one to compare to."""
        if self.begin is None or "report" not in self.steps:
            return self.begin
        return self.compare_to or (self.begin - (self.end - self.begin) if self.end else self.begin)

    def wants(self, day: str) -> bool:
        """True if the period, or the one before, has this day."""
        at = date.fromisoformat(day)
        return (self.first is None or at >= self.first) and (self.end is None or at < self.end)
