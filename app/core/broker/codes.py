"""Numbers of the standards: versions, packet types, reason codes, properties (MQTT 5, sections 2.1.2, 2.2.2, 2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class ProtocolVersion(IntEnum):
    """The protocol version byte of CONNECT (section 3.1.2.2)."""

    V3_1_1 = 4
    V5 = 5


class PacketType(IntEnum):
    """The four upper bits of a packet's first byte (section 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class ReasonCode(IntEnum):
    """The result of an operation (section 2.4); names with several meanings have the one of most packets."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class Property(IntEnum):
    """The identifier of a property (section 2.2.2.2)."""

    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


def _codes(*numbers: int) -> frozenset[ReasonCode]:
    return frozenset(map(ReasonCode, numbers))


_PUBLISHED: Final = _codes(0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
_RELEASED: Final = _codes(0x00, 0x92)
REASON_CODES: Final[Mapping[PacketType, frozenset[ReasonCode]]] = MappingProxyType(
    {
        PacketType.CONNACK: _codes(0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, *range(0x9A, 0x9E), 0x9F),
        PacketType.PUBACK: _PUBLISHED,
        PacketType.PUBREC: _PUBLISHED,
        PacketType.PUBREL: _RELEASED,
        PacketType.PUBCOMP: _RELEASED,
        PacketType.SUBACK: _codes(0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),
        PacketType.UNSUBACK: _codes(0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),
        PacketType.DISCONNECT: _codes(
            *(0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90),
            *range(0x93, 0xA3),
        ),
        PacketType.AUTH: _codes(0x00, 0x18, 0x19),
    }
)
"""The reason codes that a packet of each type may have in MQTT 5 (tables 3-1, 3-4 to 3-13)."""

RETURN_CODES: Final[Mapping[int, ReasonCode]] = MappingProxyType(
    {
        0: ReasonCode.SUCCESS,
        1: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        2: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        3: ReasonCode.SERVER_UNAVAILABLE,
        4: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        5: ReasonCode.NOT_AUTHORIZED,
    }
)
"""The return codes of CONNACK in MQTT 3.1.1 (section 3.2.2.3 there)."""


class PacketError(Exception):
    """A packet that the standard does not allow. `reason` is what the peer is told, where the version can say it."""

    def __init__(self, reason: ReasonCode, sentence: str, version: ProtocolVersion | None = None) -> None:
        """`version` is the one in which a peer understands the answer, if its packet tells."""
        super().__init__(sentence)
        self.reason: Final = reason
        self.version: Final = version


def malformed(sentence: str) -> PacketError:
    """Bytes that cannot be parsed (section 4.13.1)."""
    return PacketError(ReasonCode.MALFORMED_PACKET, sentence)


def protocol_error(sentence: str) -> PacketError:
    """Return what is parsed and not allowed (section 4.13.1)."""
    return PacketError(ReasonCode.PROTOCOL_ERROR, sentence)
