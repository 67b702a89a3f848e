"""MQTT messages as values, in the words of the MQTT 5 specification."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto

UserProperties = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class ReceivedMessage:
    """An application message that the broker delivered.

    `response_topic` and `correlation_data` (MQTT 5, sections 3.3.2.3.5 and 3.3.2.3.6) are None where the
    sender gave none or spoke 3.1.1. `user_properties` (3.3.2.3.7) are in the order of the message.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: UserProperties = ()
    redelivered: bool = False
    """The broker has sent it before, and had no PUBACK (3.3.1.1)."""


class Receipt(Enum):
    """The broker's receipt for a publication that it took (PUBACK, MQTT 5, section 3.4.2.1)."""

    UNACKNOWLEDGED = auto()
    """It was written, and with QoS 0 the broker says nothing."""
    ACKNOWLEDGED = auto()
    """0x00: the broker has it. It has subscribers, or the broker does not tell (MQTT 3.1.1 never does)."""
    UNMATCHED = auto()
    """0x10: the broker took it, and nobody is subscribed to its topic."""


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
