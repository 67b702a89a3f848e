"""The counters of membership: the lease, adopted sessions, the canary, the charter, and the channel of wake-ups."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    named=(
        (
            counted("homing_wakeup_reconnects", "Connections for wake-ups that broke, or could not be made"),
            {"wakeup.reconnects": ""},
        ),
        (
            counted("homing_adopted_sessions", "MQTT sessions of dead nodes that this node emptied and ended"),
            {"adoption.sessions": ""},
        ),
        (counted("homing_adopted_responses", "Responses that were found in them"), {"adoption.responses": ""}),
        (
            counted("homing_forgotten_sessions", "Those of them that the store had forgotten, and the broker told of"),
            {"adoption.forgotten": ""},
        ),
        (
            counted("homing_lease_lost", "Times that this node lost its lease and had to begin as a new incarnation"),
            {"lease.lost": ""},
        ),
        (
            counted("homing_lease_renewals_failed", "Renewals of the lease to which Redis gave no answer"),
            {"lease.renewal_failed": ""},
        ),
        (
            counted("homing_step_down", "Questions and answers of nodes that have lost Redis, and shares left", "step"),
            {"stepdown.asked": "asked", "stepdown.answered": "answered", "stepdown.left": "left"},
        ),
        (
            counted("homing_canary", "Messages of this node to itself over the response path", "fate"),
            {"canary.sent": "sent", "canary.returned": "returned", "canary.late": "late", "canary.refused": "refused"},
        ),
        (
            counted("homing_canary_lost", "Messages of this node to itself that did not come back in time"),
            {"canary.lost": ""},
        ),
        (
            counted("homing_charter_changed", "Times that the store had lost what the nodes of a cluster share"),
            {"charter.changed": ""},
        ),
        (
            counted("homing_charter_copied", "Times that the store turned out to be a copy of a living cluster's"),
            {"charter.copied": ""},
        ),
    ),
)
