"""The counters of the connection to the broker."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    named=(
        (counted("homing_mqtt_connections", "Connections to the broker that were made"), {"connected": ""}),
        (counted("homing_mqtt_connections_lost", "Connections to the broker that broke"), {"connection_lost": ""}),
        (
            counted("homing_mqtt_connections_failed", "Connections to the broker that could not be made"),
            {"connection_failed": ""},
        ),
        (
            counted("homing_mqtt_session_taken_over", "Times that another client used the client id of this node"),
            {"session_taken_over": ""},
        ),
        (
            counted("homing_mqtt_reading_paused", "Times that this node stopped reading until responses were settled"),
            {"reading_paused": ""},
        ),
    ),
)
