"""Messages for exchanges as callers say them, by a call or on a channel: checked, and confirmed."""

from __future__ import annotations

from typing import Any

from app.api.dependencies import Asker
from app.api.event_json import value_of
from app.api.v1.event_parameters import call_by
from app.api.v1.exchange_models import ExchangeMessage
from app.core.access.rules import Action
from app.core.errors import PayloadTooLargeError
from app.core.events.event import MAX_VALUE_BYTES, Entry
from app.core.identifiers import validate_device_id
from app.core.queues.dated import parse_not_before
from app.core.queues.exchanges import DeclaredExchange, validate_key
from app.queues.exchange_publisher import KeyedMessage, MessageReceipt


def keyed_message(
    asker: Asker,
    exchange: DeclaredExchange,
    said: ExchangeMessage,
    idempotency_key: str | None,
    field: str,
    *,
    readable: bool = True,
) -> KeyedMessage:
    """The message that a caller says in an exchange; InvalidInputError, PayloadTooLargeError, and errors of access.

    `field` is where it came; `readable`: every reader of JSON takes it.
    """
    validate_key(said.key)
    device = "" if said.device_id is None else validate_device_id(said.device_id)
    if device:
        asker.check_topic(Action.PUBLISH, device)
    value = value_of(said, field, readable=readable)
    if len(value) > MAX_VALUE_BYTES:
        raise PayloadTooLargeError(f"{field}.data", f"has {len(value)} bytes; allowed are {MAX_VALUE_BYTES}")
    entry = Entry(exchange.topic_of(said.key), value, device, "", said.id)
    besides = [device] if said.not_before is None else [device, said.not_before]
    wait = None if said.not_before is None else parse_not_before(said.not_before)
    said_besides = Entry(said.id, "\0".join(besides).encode())
    call = call_by(asker, idempotency_key, exchange.database, [entry, said_besides])
    return KeyedMessage(exchange, said.key, entry, call, said.mandatory, wait)


def receipt_json(receipt: MessageReceipt) -> dict[str, Any]:
    """The confirmation of a message as it is shown."""
    return {"position": receipt.position, "routed": list(receipt.routed)}
