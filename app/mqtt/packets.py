"""PUBLISH and PUBACK, and where a packet ends (MQTT 5, sections 2.1, 3.3 and 3.4); no I/O.

paho's own way for them costs several times the CPU under MQTT 5, as its property and reason code classes build their
tables anew for every message. All other packets stay with paho.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

PUBLISH: Final = 0x30
PUBACK: Final = 0x40
PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = 0xD0
MAX_PACKET_SIZE: Final = 5 + 268_435_455
"""Bytes; what the remaining length can say (section 2.1.4)."""
MAX_EXPIRY_SECONDS: Final = 2**32 - 1
"""The longest Message Expiry Interval (section 3.3.2.3.3)."""

_CONTINUED: Final = 0x80
"""The bit of a variable byte integer that says that another byte follows (section 1.5.5)."""
_QOS_2: Final = 0x04
_UINT16: Final = struct.Struct("!H")
_PUBACK: Final = struct.Struct("!BBH")

_MESSAGE_EXPIRY: Final = b"\x02"
_RESPONSE_TOPIC: Final = 0x08
_CORRELATION_DATA: Final = 0x09
_USER_PROPERTY: Final = 0x26
_SUBSCRIPTION_IDENTIFIER: Final = 0x0B
# Sizes of the properties of PUBLISH that have a fixed one, then those of one length-prefixed value (section 2.2.2.2).
_FIXED_SIZES: Final = {0x01: 1, 0x02: 4, 0x23: 2}
_PREFIXED: Final = frozenset({0x03, _RESPONSE_TOPIC, _CORRELATION_DATA})


class MalformedPacketError(Exception):
    """The broker sent something that is not MQTT; the connection cannot go on."""


class PublishPacket(NamedTuple):
    """A received PUBLISH; `packet_id` 0 is QoS 0. Text is still bytes, as the broker may let invalid UTF-8 through."""

    topic: bytes
    packet_id: int
    payload: bytes
    response_topic: bytes | None = None
    correlation_data: bytes | None = None
    user_properties: tuple[tuple[bytes, bytes], ...] = ()


def packet_bounds(data: bytes | bytearray, start: int) -> tuple[int, int] | None:
    """(start, end) of the body of the packet that begins at `start`; None while its fixed header is incomplete."""
    size = len(data)
    if start + 1 < size and data[start + 1] < _CONTINUED:  # the usual short packet
        return start + 2, start + 2 + data[start + 1]
    length = 0
    for index in range(4):
        position = start + 1 + index
        if position >= size:
            return None
        length |= (data[position] & 0x7F) << (7 * index)
        if data[position] < _CONTINUED:
            return position + 1, position + 1 + length
    raise MalformedPacketError("the remaining length has more than 4 bytes")


def packet(first_byte: int, body: bytes) -> bytes:
    """A whole packet: first byte, remaining length, body."""
    return b"%c%b%b" % (first_byte, _variable_byte_integer(len(body)), body)


def puback(packet_id: int) -> bytes:
    """A PUBACK that says success; the same bytes in both versions."""
    return _PUBACK.pack(PUBACK, 2, packet_id)


def decode_puback(body: bytes) -> tuple[int, int]:
    """(packet id, reason code) of a PUBACK; 3.1.1 has no reason code, which means success."""
    if len(body) < _UINT16.size:
        raise MalformedPacketError("PUBACK without packet identifier")
    return _UINT16.unpack_from(body)[0], body[_UINT16.size] if len(body) > _UINT16.size else 0


def publish(topic: bytes, payload: bytes, qos: int, packet_id: int, properties: bytes | None) -> bytes:
    """A PUBLISH of QoS 0 or 1, never retained. `properties` come from `publish_properties`, None is 3.1.1."""
    body = [_UINT16.pack(len(topic)), topic]
    if qos:
        body.append(_UINT16.pack(packet_id))
    if properties is not None:
        body.append(properties)
    body.append(payload)
    return packet(PUBLISH | qos << 1, b"".join(body))


def expiry_interval(left: timedelta) -> int:
    """The Message Expiry Interval (seconds) of a message that nobody is to get in `left` or later, if that is over 2 s.

    Brokers count in whole seconds: Mosquitto 2.0 hands a message out for up to a second longer than it says.
    """
    return min(max(1, math.ceil(left.total_seconds()) - 1), MAX_EXPIRY_SECONDS)


def publish_properties(
    expiry_seconds: int | None,
    response_topic: bytes | None,
    correlation: bytes | None,
    user: Sequence[tuple[bytes, bytes]] = (),
) -> bytes:
    """The properties of a PUBLISH with their length in front."""
    parts = []
    if expiry_seconds is not None:
        parts += [_MESSAGE_EXPIRY, struct.pack("!I", expiry_seconds)]
    if response_topic is not None:
        parts += [b"\x08", _UINT16.pack(len(response_topic)), response_topic]
    if correlation is not None:
        parts += [b"\x09", _UINT16.pack(len(correlation)), correlation]
    for pair in user:
        parts += [b"\x26", *(part for text in pair for part in (_UINT16.pack(len(text)), text))]
    properties = b"".join(parts)
    return _variable_byte_integer(len(properties)) + properties


def decode_publish(first_byte: int, body: bytes, *, with_properties: bool) -> PublishPacket:
    """A PUBLISH of QoS 0 or 1; raises MalformedPacketError when lengths do not add up."""
    user: list[tuple[bytes, bytes]] = []
    if first_byte & _QOS_2:
        raise MalformedPacketError("PUBLISH with QoS 2 or 3, which no subscription of ours asks for")
    try:
        position = 2 + _UINT16.unpack_from(body)[0]
        topic = body[2:position]
        packet_id = 0
        properties: dict[int, bytes] = {}
        if first_byte & 0x06:
            packet_id = _UINT16.unpack_from(body, position)[0]
            position += 2
        if with_properties:
            properties, position = _decode_properties(body, position, user)
    except (struct.error, IndexError) as error:
        raise MalformedPacketError("PUBLISH ends too early") from error
    if not topic or position > len(body):
        raise MalformedPacketError("PUBLISH without topic or shorter than its lengths say")
    return PublishPacket(
        topic,
        packet_id,
        body[position:],
        properties.get(_RESPONSE_TOPIC),
        properties.get(_CORRELATION_DATA),
        tuple(user) if user else (),
    )


def _decode_properties(body: bytes, position: int, user: list[tuple[bytes, bytes]]) -> tuple[dict[int, bytes], int]:
    """Return the properties with a length-prefixed value by identifier, and where the payload begins; skip the others.

    User properties go into `user`.
    """
    found: dict[int, bytes] = {}
    if body[position] == 0:
        return found, position + 1
    length, position = _read_variable_byte_integer(body, position)
    end = position + length
    while position < end:
        identifier = body[position]
        position += 1
        if identifier in _PREFIXED:
            start = position + 2
            position = start + _UINT16.unpack_from(body, position)[0]
            found[identifier] = body[start:position]
        elif identifier in _FIXED_SIZES:
            position += _FIXED_SIZES[identifier]
        elif identifier == _USER_PROPERTY:
            start, middle = position + 2, position + 2 + _UINT16.unpack_from(body, position)[0]
            position = middle + 2 + _UINT16.unpack_from(body, middle)[0]
            user.append((body[start:middle], body[middle + 2 : position]))
        elif identifier == _SUBSCRIPTION_IDENTIFIER:
            _, position = _read_variable_byte_integer(body, position)
        else:
            raise MalformedPacketError(f"PUBLISH with unknown property 0x{identifier:02x}")
    if position != end:
        raise MalformedPacketError("the properties of PUBLISH are longer than they say")
    return found, end


def _variable_byte_integer(value: int) -> bytes:
    """Section 1.5.5."""
    if value < _CONTINUED:
        return b"%c" % value
    encoded = bytearray()
    while value >= _CONTINUED:
        encoded.append(value & 0x7F | _CONTINUED)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_variable_byte_integer(data: bytes, position: int) -> tuple[int, int]:
    bounds = packet_bounds(data, position - 1)
    if bounds is None:
        raise IndexError(position)
    return bounds[1] - bounds[0], bounds[0]
