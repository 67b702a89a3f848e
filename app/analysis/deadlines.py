"""Learned deadlines as nodes load them. How they are learned is in tables.sql, and why so in docs/analysis.md."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Final

from app.core.commands.deadlines import VERSION
from app.core.ranges import check_range

TIMEOUTS_NAME: Final = "timeouts.toml"
_HEAD: Final = """\
# Timeouts that were learned from the latency log by `homing analyze`. A node reads this file at its start when
# HOMING_TIMEOUTS_FILE names it, for commands whose caller gives no timeout: that of the device's group, else that of
# the method, else HOMING_COMMAND_DEFAULT_TIMEOUT. Only profile, method, device_group and timeout count; the rest says
# where they come from. See "Learned deadlines" in docs/analysis.md.
"""


@dataclass(frozen=True, slots=True)
class DeadlineOptions:
    """Options for how timeouts are learned."""

    quantile: float = 0.999
    margin: float = 0.25
    """The addition to the quantile, as a share of it."""
    shortest: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(hours=1)
    held_out: float = 0.2
    """Share of the hours with records, the latest, on which the back-test judges what was learned from the others."""

    def __post_init__(self) -> None:
        """ConfigurationError names the option that is wrong and what is allowed."""
        check_range("--timeout-quantile", self.quantile, 0.5, 0.99999)
        check_range("--timeout-margin", self.margin, 0, 10)
        check_range("--timeout-min", self.shortest, timedelta(milliseconds=1), timedelta(days=30))
        check_range("--timeout-max", self.longest, self.shortest, timedelta(days=30))
        check_range("--held-out", self.held_out, 0, 0.9)

    def as_json(self) -> dict[str, float]:
        """For summary.json, and for tables.sql; durations in microseconds."""
        return {
            "quantile": self.quantile,
            "margin": self.margin,
            # Responses that a method or group must have: with fewer the quantile would be the longest time seen.
            "least_responses": math.ceil(round(1 / (1 - self.quantile), 6)),
            # Responses with which a group counts half: ten of them are expected beyond the quantile.
            "half": 10 / (1 - self.quantile),
            "shortest_us": self.shortest // timedelta(microseconds=1),
            "longest_us": self.longest // timedelta(microseconds=1),
            "held_out": self.held_out,
        }


def cut_of(hours: Sequence[datetime], held_out: float) -> datetime:
    """The begin of the held-out hours, of these that have records.

    Hours between them do not count: else one record of 1970 would have all others held out.
    """
    kept_back = min(len(hours) - 1, max(1, round(len(hours) * held_out))) if held_out else 0
    return hours[-kept_back] if kept_back else hours[-1] + timedelta(hours=1)


class End(IntEnum):
    """The end of a command, as far as its time is concerned."""

    ANSWERED = 0
    LATE = 1
    """Timed out; the response came after all."""
    NEVER = 2
    """Timed out; no response on record. `bucket` and `sum_us` of the cell are null and 0."""
    CANCELLED = 3
    """Cancelled; the response came after all. Tells how long it took, but not how long anybody would have waited."""


def timeouts_file(
    rows: Iterable[dict[str, Any]], options: DeadlineOptions, rule: str, first: datetime, last: datetime
) -> str:
    """timeouts.toml. `rule` tells the group of a device id; `first` and `last` say of which hours the log was."""
    used = [row for row in rows if row["timeout_us"] is not None]
    of_all = {
        "version": VERSION,
        "device_group": rule if any(row["device_group"] for row in used) else None,
        "quantile": options.quantile,
        "margin": options.margin,
        "learned_from": first.isoformat(),
        "learned_until": last.isoformat(),
    }
    found = [_HEAD + _toml(of_all)]
    for row in used:
        of_row = {name: row[name] for name in ("profile", "method", "device_group")}
        of_row["timeout"] = f"{row['timeout_us'] / 1e6:g}s"
        of_row |= {name: row[name] for name in ("quantile_us", "weight", "responses", "late", "never_answered")}
        found.append(f"[[timeout]]\n{_toml(of_row)}")
    return "\n".join(found)


def _toml(values: dict[str, Any]) -> str:
    """JSON's escapes are among TOML's, but for DEL, which JSON leaves as it is."""
    known = {name: json.dumps(value, ensure_ascii=False) for name, value in values.items() if value is not None}
    return "".join(f"{name} = {text}\n" for name, text in known.items()).replace("\x7f", "\\u007F")
