"""MQTT messages as values, in the words of the MQTT 5 specification."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

UserProperties = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class ReceivedMessage:
    """An application message that the broker delivered.

    `response_topic` and `correlation_data` (MQTT 5, sections 3.3.2.3.5 and 3.3.2.3.6) are None where the
    sender gave none or spoke 3.1.1. `user_properties` (3.3.2.3.7) are read only where the client was asked to.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: UserProperties = ()


@dataclass(slots=True)
class Publication:
    """An application message to publish. It is never retained: a retained command would fire again on every subscribe.

    `message_expiry` (MQTT 5, section 3.3.2.3.3), `response_topic`, `correlation_data` and `user_properties` are left
    out on 3.1.1.
    """

    topic: str
    payload: bytes
    qos: int = 1
    message_expiry: timedelta | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: UserProperties = ()
