"""timeouts.toml: the learned deadlines as a node loads them (HOMING_TIMEOUTS_FILE) and people read them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from app.analysis.deadlines import MICROS, DeadlineOptions
from app.core.deadlines import VERSION

FILE_NAME: Final = "timeouts.toml"

_HEAD: Final = """\
# Timeouts that were learned from the latency log by `homing analyze`. A node reads this file at its start when
# HOMING_TIMEOUTS_FILE names it, for commands whose caller gives no timeout: that of the device's group, else that of
# the method, else HOMING_COMMAND_DEFAULT_TIMEOUT. Only profile, method, device_group and timeout count; the rest says
# where they come from. See "Learned deadlines" in docs/analysis.md.
"""


def render(
    rows: Iterable[dict[str, Any]], options: DeadlineOptions, rule: str | None, first: datetime, last: datetime
) -> str:
    """The file. `rule` tells the group of a device id; `first` and `last` say of which hours the log was."""
    used = [row for row in rows if row["timeout_us"] is not None]
    lines = [_HEAD, f"version = {VERSION}"]
    if rule is not None and any(row["device_group"] for row in used):
        lines.append(f"device_group = {_text(rule)}")
    lines += [
        f"quantile = {options.quantile!r}",
        f"margin = {options.margin!r}",
        f"learned_from = {_text(first.isoformat())}",
        f"learned_until = {_text(last.isoformat())}",
    ]
    for row in used:
        group = [f"device_group = {_text(row['device_group'])}"] if row["device_group"] else []
        lines += [
            "",
            "[[timeout]]",
            f"profile = {_text(row['profile'])}",
            f"method = {_text(row['method'])}",
            *group,
            f'timeout = "{row["timeout_us"] / MICROS:g}s"',
            f"quantile_us = {row['quantile_us']}",
            f"weight = {row['weight']:.3f}",
            f"responses = {row['responses']}",
            f"late = {row['late']}",
            f"never_answered = {row['never_answered']}",
        ]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """A basic string of TOML: JSON's escapes are among TOML's, but for DEL, which JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
