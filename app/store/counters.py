"""The counters of calls to the store."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    named=(
        (counted("homing_store_reconnects", "Connections to the store that were made anew"), {"store.reconnected": ""}),
        (
            counted("homing_store_calls_failed", "Calls to the store that ended without a reply, by why", "reason"),
            {
                "store.rejected": "queue_full",
                "store.timed_out": "timed_out",
                "store.failed": "refused",
                "store.out_of_memory": "out_of_memory",
            },
        ),
        (
            counted("homing_store_calls_repeated", "Calls that were sent again after a connection had broken"),
            {"store.retried": ""},
        ),
        (
            counted("homing_store_redirects", "Calls that a member of a Redis Cluster did not serve, by why", "reason"),
            {
                "store.moved": "moved",
                "store.asked": "ask",
                "store.parked": "try_again",
                "store.away": "cluster_down",
            },
        ),
        (
            counted("homing_store_scripts_reloaded", "Times that Redis had forgotten the scripts"),
            {"store.scripts_reloaded": ""},
        ),
        (counted("homing_store_silences", "Times that the store answered nobody for a while"), {"store.silent": ""}),
        (
            counted("homing_store_replicas_short", "Batches of writes that too few replicas acknowledged in time"),
            {"store.wait_short": ""},
        ),
    ),
)
