"""The counters of queues over the event log."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    prefixed={"queues.": counted("homing_queue_events", "What happened to events in queues", "event")},
    at_zero=(
        *("queues.fed", "queues.lent", "queues.lent_again", "queues.settled", "queues.over"),
        *("queues.dead_letters", "queues.expired", "queues.missed", "queues.not_shown"),
    ),
)
