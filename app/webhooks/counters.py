"""The counters of webhooks."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    prefixed={"webhooks.": counted("homing_webhook_events", "What happened to webhooks", "event")},
    at_zero=(
        *("webhooks.dropped_endpoint_full", "webhooks.dropped_tenant_full"),
        *("webhooks.delivered", "webhooks.failed", "webhooks.given_up", "webhooks.lost"),
    ),
)
