"""What `homing analyze` was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from app.analysis.deadlines import DeadlineOptions
from app.analysis.devices import GROUP_PATTERN
from app.core.deadlines import group_rule
from app.core.errors import ConfigurationError

MOMENT: Final = "an hour in UTC such as 2026-11-21, 2026-11-21T07 or 2026-11-21T07:00Z"
_MOMENT: Final = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2})(?::00(?::00)?)?)?(?:Z|\+00:00)?", re.ASCII)
LEVEL: Final = 0.001
MAX_PENDING: Final = 20_000
"""As HOMING_COMMAND_MAX_PENDING is unless set."""
TOP: Final = 20
_MOST_TOP: Final = 1000


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """`log` and `out` are folders or URLs that fsspec knows; instants are full hours in UTC, `end` is exclusive."""

    log: str
    out: str
    begin: datetime | None = None
    end: datetime | None = None
    compare_to: datetime | None = None
    max_pending: int = MAX_PENDING
    top: int = TOP
    level: float = LEVEL
    device_group: str = GROUP_PATTERN
    master: str | None = None
    deadlines: DeadlineOptions = field(default_factory=DeadlineOptions)

    def __post_init__(self) -> None:
        """ConfigurationError names the option, and what is allowed."""
        if self.begin and self.end and self.begin >= self.end:
            raise ConfigurationError(f"--to {self.end:%Y-%m-%dT%HZ}: must be after --from")
        if self.compare_to and (self.begin is None or self.compare_to >= self.begin):
            raise ConfigurationError("--compare-to: needs --from, and must be before it")
        if not 1 <= self.top <= _MOST_TOP:
            raise ConfigurationError(f"--top is {self.top}; allowed: 1 to {_MOST_TOP}")
        if not 0 < self.level < 1:
            raise ConfigurationError(f"--level is {self.level:g}; allowed: over 0, under 1")
        if self.max_pending < 1:
            raise ConfigurationError(f"--max-pending is {self.max_pending}; allowed: 1 or more")
        try:
            group_rule(self.device_group)
        except ValueError as error:
            raise ConfigurationError(f"--device-group: {error}") from None
        self.deadlines.check()

    @property
    def first(self) -> datetime | None:
        """Where reading begins: with the period before, when there is one to compare to."""
        if self.compare_to is not None:
            return self.compare_to
        if self.begin is None or self.end is None:
            return self.begin
        return self.begin - (self.end - self.begin)


def parse_moment(option: str, text: str) -> datetime:
    """The hour that an option names; ConfigurationError says what is allowed."""
    found = _MOMENT.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError  # noqa: TRY301 - both are one mistake
        return datetime.strptime(f"{found[1]} {found[2] or '00'}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    except ValueError:
        raise ConfigurationError(f"{option} {text[:32]!a}: not an hour; allowed: {MOMENT}") from None


HOUR: Final = timedelta(hours=1)
