"""The counters of events of devices, and of their presence."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    prefixed={
        "events.": counted("homing_device_events", "What happened to events of devices", "event"),
        "presence.": counted("homing_device_presence", "Devices that have come or gone", "event"),
    },
    at_zero=(
        *("events.appended", "events.refused", "events.retried", "presence.online", "presence.offline"),
        "events.forgotten",
        *("events.cold_retried", "events.cold_stuck", "events.damaged_files"),
        *("events.cursor_commits", "events.cursor_conflicts"),
    ),
)
