"""The counters of the broker in the node."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    named=(
        (counted("homing_broker_connections", "Connections that the broker accepted"), {"broker.connected": ""}),
        (counted("homing_broker_disconnections", "Connections that have ended"), {"broker.disconnected": ""}),
        (
            counted("homing_broker_taken_over", "Connections that ended for another one with the same client id"),
            {"broker.taken_over": ""},
        ),
        (
            counted("homing_broker_backed_off", "Connections that waited, as others kept taking their client id over"),
            {"broker.backed_off": ""},
        ),
        (counted("homing_broker_messages", "Messages that clients published"), {"broker.received": ""}),
        (counted("homing_broker_sent", "Messages that clients were sent"), {"broker.sent": ""}),
        (counted("homing_broker_received_bytes", "Bytes that clients sent"), {"broker.received_bytes": ""}),
        (counted("homing_broker_sent_bytes", "Bytes that clients were sent"), {"broker.sent_bytes": ""}),
        (
            counted("homing_broker_unknown_acknowledgements", "Acknowledgements of messages that were not on the way"),
            {"broker.unknown_acknowledgement": ""},
        ),
    ),
    prefixed={
        "broker.denied.": counted(
            "homing_broker_denied", "Messages and subscriptions of clients that may not publish or have them", "kind"
        ),
        "broker.dropped.": counted("homing_broker_dropped", "Messages that a client did not get", "reason"),
        "broker.refused.": counted("homing_broker_refused", "Connections that the broker ended", "reason"),
    },
    at_zero=(
        *("broker.denied.publish", "broker.denied.subscribe"),
        *("broker.dropped.expired", "broker.dropped.memory_full", "broker.dropped.queue_full"),
        *("broker.dropped.retained_full", "broker.dropped.slow_reader", "broker.dropped.too_large"),
        *("broker.refused.keep_alive_timeout", "broker.refused.malformed_packet", "broker.refused.no_connect"),
        *("broker.refused.connection_rate_exceeded", "broker.refused.too_many_of_peer"),
        *("broker.refused.bad_user_name_or_password", "broker.refused.not_authorized"),
        *("broker.refused.not_read", "broker.refused.protocol_error", "broker.refused.server_busy"),
        "broker.refused.quota_exceeded",
        *("broker.refused.tls_handshake", "broker.refused.unfinished_packet"),
    ),
)
