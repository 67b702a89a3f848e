"""Events as JSON. What is JSON already is copied, never written anew."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable
from typing import Any

import orjson

from app.api.event_schemas import Said
from app.api.representation import instant
from app.core.errors import InvalidInputError
from app.core.eventlog.event import Entry, Event


def event_json(event: Event) -> bytes:
    """One event."""
    entry = event.entry
    return orjson.dumps({**about(event), "id": entry.id or None, **_data(entry.value)})


def about(event: Event) -> dict[str, Any]:
    """Everything but what was said."""
    entry = event.entry
    return {
        "position": event.position,
        "at": instant(event.position),
        "topic": entry.topic,
        "device_id": entry.device or None,
        "kind": entry.kind or None,
    }


def events_json(events: Iterable[Event]) -> bytes:
    """Several."""
    return b"[%b]" % b",".join([event_json(event) for event in events])


def _data(value: bytes) -> dict[str, Any]:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return {"data_base64": b64encode(value).decode()}
    return {"data": orjson.Fragment(value)}


def value_of(said: Said, field: str) -> bytes:
    """What is said, as bytes; InvalidInputError about this field."""
    if said.data_base64 is None:
        if "data" not in said.model_fields_set:
            raise InvalidInputError(f"{field}.data", "is missing; allowed: data as JSON, or data_base64")
        return orjson.dumps(said.data)
    if "data" in said.model_fields_set:
        raise InvalidInputError(f"{field}.data_base64", "and data contradict each other; one is allowed")
    try:
        return b64decode(said.data_base64, validate=True)
    except (Error, ValueError):
        raise InvalidInputError(f"{field}.data_base64", "is not base64 (RFC 4648, section 4)") from None


def entry_of(said: Said, field: str, device: str) -> Entry:
    """What is said, as an entry."""
    return Entry(said.topic, value_of(said, field), device)
