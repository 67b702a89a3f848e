"""The counters of callers: their connections and streams, those that left, and those that were refused."""

from __future__ import annotations

from typing import Final

from app.runtime.families import CounterTable, counted

COUNTERS: Final = CounterTable(
    named=(
        (
            counted("homing_http_connections_opened", "Connections of callers that were taken"),
            {"http.opened": ""},
        ),
        (
            counted("homing_callers_left", "Parked callers that did not get the outcome here, by why", "reason"),
            {"caller.hung_up": "hung_up", "caller.dismissed": "dismissed"},
        ),
        (counted("homing_websockets_opened", "WebSockets that were opened"), {"websocket.opened": ""}),
        (counted("homing_streams_opened", "Streams of events that were begun"), {"stream.opened": ""}),
        (counted("homing_streams_refused", "Streams for which there was no place"), {"stream.refused": ""}),
        (
            counted("homing_streams_ended", "Streams that ended before what they tell, by why", "reason"),
            {f"stream.{why}": why for why in ("hung_up", "dismissed", "unwanted", "too_slow", "failed")},
        ),
    ),
    prefixed={
        "refused.": counted("homing_refused", "Requests that were refused, by problem type", "problem"),
        "http.closed.": counted(
            "homing_http_connections_closed", "Connections that this node closed or turned away, by why", "reason"
        ),
    },
    at_zero=(
        *("http.closed.too_many", "http.closed.too_many_of_peer", "http.closed.made_room", "http.closed.unreadable"),
        *("refused.limit-reached", "refused.store-unavailable", "refused.broker-unavailable", "refused.node-draining"),
    ),
)
