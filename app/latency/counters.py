"""The counters of the latency log."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    prefixed={"latency.": counted("homing_latency_log_events", "What happened to the latency log", "event")},
    at_zero=(
        "latency.records",
        "latency.write_failures",
        "latency.dropped_full_buffer",
        "latency.dropped_write_failed",
    ),
)
