"""The counters of the audit."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    prefixed={"audit.": counted("homing_audit_lines", "Lines of the audit, by what became of them", "result")},
    at_zero=("audit.dropped",),
)
