"""Properties of MQTT 5 (section 2.2.2): which packet may have which, how often, and with which values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from types import MappingProxyType
from typing import Final

from app.core.broker.codes import PacketError, PacketType, Property, ReasonCode, malformed, protocol_error
from app.core.broker.wire import Reader, binary_of, text_of, variable_of

Value = int | str | bytes
P, T = Property, PacketType
PAIR_OVERHEAD: Final = 64
"""Bytes that a user property takes besides its two texts, roughly."""
WILL: Final = 0
"""The value in place of a packet type for the properties of a will (section 3.1.3.2)."""

_ACKS: Final = (T.PUBACK, T.PUBREC, T.PUBREL, T.PUBCOMP)
_MESSAGE: Final = (T.PUBLISH, WILL)
_PLACES: Final[Mapping[Property, tuple[int, ...]]] = MappingProxyType(
    {
        P.PAYLOAD_FORMAT_INDICATOR: _MESSAGE,
        P.MESSAGE_EXPIRY_INTERVAL: _MESSAGE,
        P.CONTENT_TYPE: _MESSAGE,
        P.RESPONSE_TOPIC: _MESSAGE,
        P.CORRELATION_DATA: _MESSAGE,
        P.SUBSCRIPTION_IDENTIFIER: (T.PUBLISH, T.SUBSCRIBE),
        P.SESSION_EXPIRY_INTERVAL: (T.CONNECT, T.CONNACK, T.DISCONNECT),
        P.ASSIGNED_CLIENT_IDENTIFIER: (T.CONNACK,),
        P.SERVER_KEEP_ALIVE: (T.CONNACK,),
        P.AUTHENTICATION_METHOD: (T.CONNECT, T.CONNACK, T.AUTH),
        P.AUTHENTICATION_DATA: (T.CONNECT, T.CONNACK, T.AUTH),
        P.REQUEST_PROBLEM_INFORMATION: (T.CONNECT,),
        P.WILL_DELAY_INTERVAL: (WILL,),
        P.REQUEST_RESPONSE_INFORMATION: (T.CONNECT,),
        P.RESPONSE_INFORMATION: (T.CONNACK,),
        P.SERVER_REFERENCE: (T.CONNACK, T.DISCONNECT),
        P.REASON_STRING: (T.CONNACK, *_ACKS, T.SUBACK, T.UNSUBACK, T.DISCONNECT, T.AUTH),
        P.RECEIVE_MAXIMUM: (T.CONNECT, T.CONNACK),
        P.TOPIC_ALIAS_MAXIMUM: (T.CONNECT, T.CONNACK),
        P.TOPIC_ALIAS: (T.PUBLISH,),
        P.MAXIMUM_QOS: (T.CONNACK,),
        P.RETAIN_AVAILABLE: (T.CONNACK,),
        P.USER_PROPERTY: (
            *(T.CONNECT, T.CONNACK, T.PUBLISH, WILL, *_ACKS, T.SUBSCRIBE, T.SUBACK, T.UNSUBSCRIBE, T.UNSUBACK),
            *(T.DISCONNECT, T.AUTH),
        ),
        P.MAXIMUM_PACKET_SIZE: (T.CONNECT, T.CONNACK),
        P.WILDCARD_SUBSCRIPTION_AVAILABLE: (T.CONNACK,),
        P.SUBSCRIPTION_IDENTIFIER_AVAILABLE: (T.CONNACK,),
        P.SHARED_SUBSCRIPTION_AVAILABLE: (T.CONNACK,),
    }
)
_FLAGS: Final = frozenset(
    {
        *(P.PAYLOAD_FORMAT_INDICATOR, P.REQUEST_PROBLEM_INFORMATION, P.REQUEST_RESPONSE_INFORMATION, P.MAXIMUM_QOS),
        *(P.RETAIN_AVAILABLE, P.WILDCARD_SUBSCRIPTION_AVAILABLE, P.SUBSCRIPTION_IDENTIFIER_AVAILABLE),
        P.SHARED_SUBSCRIPTION_AVAILABLE,
    }
)
_UINT16: Final = frozenset({P.SERVER_KEEP_ALIVE, P.RECEIVE_MAXIMUM, P.TOPIC_ALIAS_MAXIMUM, P.TOPIC_ALIAS})
_UINT32: Final = frozenset(
    {P.MESSAGE_EXPIRY_INTERVAL, P.SESSION_EXPIRY_INTERVAL, P.WILL_DELAY_INTERVAL, P.MAXIMUM_PACKET_SIZE}
)
_BINARY: Final = frozenset({P.CORRELATION_DATA, P.AUTHENTICATION_DATA})
_NEVER_ZERO: Final = frozenset({P.RECEIVE_MAXIMUM, P.MAXIMUM_PACKET_SIZE, P.SUBSCRIPTION_IDENTIFIER})
_KNOWN: Final = {int(one): one for one in Property}


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a packet. `values` has each at most once; the other two may come several times, in this order.

    `subscription_identifiers` are for PUBLISH, which may have several; SUBSCRIBE has one in `values`.
    """

    values: Mapping[Property, Value] = field(default_factory=dict)
    user: tuple[tuple[str, str], ...] = ()
    subscription_identifiers: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.values or self.user or self.subscription_identifiers)

    @property
    def size(self) -> int:
        """Bytes that they take, roughly."""
        texts = sum(getsizeof(one) for one in self.values.values() if not isinstance(one, int))
        return texts + sum(PAIR_OVERHEAD + getsizeof(name) + getsizeof(text) for name, text in self.user)

    def number(self, key: Property, default: int = 0) -> int:
        """A number, or the default where there is none."""
        found = self.values.get(key, default)
        return found if isinstance(found, int) else default


NO_PROPERTIES: Final = Properties()


def read_properties(reader: Reader, place: int) -> Properties:
    """The properties of a packet of this type, or of a will; PacketError."""
    part = reader.part()
    if not part.left:
        return NO_PROPERTIES
    values: dict[Property, Value] = {}
    user: list[tuple[str, str]] = []
    identifiers: list[int] = []
    while part.left:
        number = part.variable()
        key = _KNOWN.get(number)
        if key is None or place not in _PLACES[key]:
            raise malformed(f"a property 0x{number:02x} in a packet that has none such")
        if key is P.USER_PROPERTY:
            user.append((part.text(), part.text()))
            continue
        value = _reader_of(key)(part)
        _check(key, value)
        if key is P.SUBSCRIPTION_IDENTIFIER and place == T.PUBLISH and isinstance(value, int):
            identifiers.append(value)
        elif key in values:
            raise protocol_error(f"{key.name} is there more than once")
        else:
            values[key] = value
    if P.AUTHENTICATION_DATA in values and P.AUTHENTICATION_METHOD not in values:
        raise protocol_error("AUTHENTICATION_DATA without AUTHENTICATION_METHOD")
    return Properties(values, tuple(user), tuple(identifiers))


def write_properties(properties: Properties, place: int) -> bytes:
    """Their length and bytes; ValueError when the packet may not have them."""
    if not properties:
        return b"\0"
    pieces = []
    for key, value in properties.values.items():
        if place not in _PLACES[key]:
            raise ValueError(f"{key.name} in a packet that has none such")
        pieces += [bytes((key,)), _bytes_of(key, value)]
    for identifier in properties.subscription_identifiers:
        pieces += [bytes((P.SUBSCRIPTION_IDENTIFIER,)), variable_of(identifier)]
    for name, text in properties.user:
        pieces += [bytes((P.USER_PROPERTY,)), text_of(name), text_of(text)]
    body = b"".join(pieces)
    return variable_of(len(body)) + body


def _reader_of(key: Property) -> Callable[[Reader], Value]:
    if key in _FLAGS:
        return Reader.byte
    if key in _UINT16:
        return Reader.uint16
    if key in _UINT32:
        return Reader.uint32
    if key is P.SUBSCRIPTION_IDENTIFIER:
        return Reader.variable
    return Reader.binary if key in _BINARY else Reader.text


def _check(key: Property, value: Value) -> None:
    if key in _FLAGS and value not in (0, 1):
        raise protocol_error(f"{key.name} is {value!r}; allowed: 0 and 1")
    if key in _NEVER_ZERO and value == 0:
        raise protocol_error(f"{key.name} is 0")
    if key is P.TOPIC_ALIAS and value == 0:
        raise PacketError(ReasonCode.TOPIC_ALIAS_INVALID, "TOPIC_ALIAS is 0")  # [MQTT-3.3.2-8]
    if key is P.RESPONSE_TOPIC and isinstance(value, str) and (not value or "+" in value or "#" in value):
        raise protocol_error("RESPONSE_TOPIC is no topic name")  # [MQTT-3.3.2-14]


def _bytes_of(key: Property, value: Value) -> bytes:
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, bytes):
        return binary_of(value)
    if key is P.SUBSCRIPTION_IDENTIFIER:
        return variable_of(value)
    return value.to_bytes(1 if key in _FLAGS else 2 if key in _UINT16 else 4)
