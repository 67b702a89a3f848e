"""The events that endpoints are told, as JSON (Standard Webhooks 1.0: type, timestamp, data)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from app.core.commands.command import Command
from app.core.commands.fingerprint import fingerprint_of
from app.core.payload import compact
from app.core.webhooks.deliveries import Delivery, OutboxEntry, Tidings, event_id
from app.core.webhooks.endpoints import BY_STATE, Endpoint, EventType

_KINDS: Final = {
    Tidings.LATE: EventType.LATE,
    Tidings.VERIFIED: EventType.VERIFIED,
    Tidings.ASKED: EventType.APPROVAL_ASKED,
}
Render = Callable[[Command], bytes]
"""A command as the API shows it."""


def of_command(notice: OutboxEntry, command: Command, render: Render, now: int) -> Delivery:
    """The event of a command that has an outcome, or that a second person has to approve; `now` in µs."""
    kind = _KINDS.get(notice.tidings) or BY_STATE[command.state]
    data = {"sequence": notice.tidings.sequence, "command": orjson.Fragment(render(command))}
    if notice.tidings is Tidings.ASKED:
        data["fingerprint"] = fingerprint_of(command)
    at = now if notice.tidings is not Tidings.OUTCOME or command.finished_at is None else command.finished_at
    return Delivery(event_id(notice), kind, _body(kind, at, data), now)


def of_disabled(endpoint: Endpoint, now: int) -> Delivery:
    """The event that an endpoint is not served any more."""
    data = {"webhook_id": endpoint.id, "url": endpoint.url, "reason": endpoint.disabled_reason}
    return Delivery(f"evt_{endpoint.id}_{now}", EventType.DISABLED, _body(EventType.DISABLED, now, data), now)


def of_test(endpoint: Endpoint, now: int) -> Delivery:
    """Return what somebody asked for who wants to see that it works."""
    return Delivery(
        f"evt_{endpoint.id}_{now}", EventType.TEST, _body(EventType.TEST, now, {"webhook_id": endpoint.id}), now
    )


def _body(kind: EventType, at: int, data: dict[str, Any]) -> bytes:
    # To the millisecond, as all of Homing's instants in JSON.
    moment = datetime.fromtimestamp(at // 1000 / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return compact(orjson.dumps({"type": kind, "timestamp": moment, "data": data}))
