"""Events as JSON. What is JSON already is copied, never written anew."""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable
from typing import Any

import orjson

from app.api.problems import UNREADABLE
from app.api.representation import instant
from app.api.v1.event_models import EventValue, Said
from app.core.errors import InvalidInputError, PayloadTooLargeError, UndecodableMessageError
from app.core.events.event import MAX_VALUE_BYTES, Entry, Event, validate_writable
from app.core.payload import decode_json
from app.core.queues.dated import not_before_of
from app.profiles.quick_json import read_json


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
        **_kind(entry),
    }


def _kind(entry: Entry) -> dict[str, Any]:
    """The kind of an event, or, of a dated message, its instant."""
    instant_us = not_before_of(entry)
    return {"kind": None, "not_before": instant(instant_us)} if instant_us else {"kind": entry.kind or None}


def events_json(events: Iterable[Event]) -> bytes:
    """Several."""
    return b"[%b]" % b",".join([event_json(event) for event in events])


def _data(value: bytes) -> dict[str, Any]:
    """As JSON only where every reader takes it alike; else byte for byte."""
    try:
        read_json(value)
    except UndecodableMessageError:
        return {"data_base64": b64encode(value).decode()}
    return {"data": orjson.Fragment(value)}


def value_of(said: EventValue, field: str, *, readable: bool) -> bytes:
    """Return the value that is said, as bytes; InvalidInputError about this field.

    `readable`: every reader of JSON takes it.
    """
    if said.data_base64 is None:
        if "data" not in said.model_fields_set:
            raise InvalidInputError(f"{field}.data", "is missing; allowed: data as JSON, or data_base64")
        if not readable:
            _check(said.data, f"{field}.data")
        return orjson.dumps(said.data)
    if "data" in said.model_fields_set:
        raise InvalidInputError(f"{field}.data_base64", "and data contradict each other; one is allowed")
    try:
        return b64decode(said.data_base64, validate=True)
    except (Error, ValueError):
        raise InvalidInputError(f"{field}.data_base64", "is not base64 (RFC 4648, section 4)") from None


def _check(data: Any, field: str) -> None:  # noqa: ANN401 - any JSON
    """InvalidInputError where it is this that not every reader of JSON takes."""
    try:
        decode_json(json.dumps(data).encode(), max_bytes=sys.maxsize)
    except UndecodableMessageError as error:
        raise InvalidInputError(field, UNREADABLE.get(error.reason, error.reason)) from None


def entry_of(said: Said, field: str, device: str, *, readable: bool) -> Entry:
    """Return what is said as an entry; PayloadTooLargeError names the field."""
    value = value_of(said, field, readable=readable)
    if len(value) > MAX_VALUE_BYTES:
        raise PayloadTooLargeError(f"{field}.data", f"has {len(value)} bytes; allowed are {MAX_VALUE_BYTES}")
    return Entry(validate_writable(said.topic, f"{field}.topic"), value, device)
