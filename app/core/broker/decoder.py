"""Packets out of bytes, as the standards allow them: MQTT 5, and 3.1.1 where it differs.

Whatever the bytes are, the result is a packet or a PacketError, whose reason is for the peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from app.core.broker import packets
from app.core.broker.codes import (
    REASON_CODES,
    RETURN_CODES,
    PacketError,
    PacketType,
    Property,
    ProtocolVersion,
    ReasonCode,
    malformed,
    protocol_error,
)
from app.core.broker.filters import SHARED, check_filter, check_topic
from app.core.broker.packets import FilterOptions, Packet, WillMessage
from app.core.broker.properties import NO_PROPERTIES, WILL, Properties, read_properties
from app.core.broker.wire import Reader

V3, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
MOST_QOS: Final = 2
_NAME: Final = b"MQTT"
_NAME_OF_3_1: Final = b"MQIsdp"
_FIRST_BRIDGE: Final = 0x80
"""Bridges set this bit of the version."""
_NEEDED_FLAGS: Final = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}
"""The lower bits of the first byte, where they are not zero [MQTT-3.6.1-1, 3.8.1-1, 3.10.1-1]."""


def decode(first_byte: int, body: bytes, version: ProtocolVersion) -> Packet:
    """The packet; PacketError. A CONNECT says its version itself."""
    try:
        kind = PacketType(first_byte >> 4)
    except ValueError:
        raise malformed("a packet of type 0, which is reserved") from None
    flags = first_byte & 0x0F
    reader = Reader(body)
    if kind is PacketType.PUBLISH:
        return _publish(flags, reader, version)
    if flags != _NEEDED_FLAGS.get(kind, 0):
        raise malformed(f"{kind.name} with flags {flags:04b}")  # [MQTT-2.1.3-1]
    found = _DECODERS[kind](kind, reader, version)
    reader.finish()
    return found


def _connect(_kind: PacketType, reader: Reader, _version: ProtocolVersion) -> Packet:
    name, number = reader.binary(), reader.byte()
    if name != _NAME or number not in (V3, V5):  # [MQTT-3.1.2-1, -2]; bridges try 0x83 and 0x84 first
        known = name in (_NAME, _NAME_OF_3_1)
        what = f"CONNECT of protocol version {number}" if known else "CONNECT of a protocol that is not MQTT"
        answer = V5 if V5 <= number < _FIRST_BRIDGE else V3
        raise PacketError(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, what, answer)
    version, flags = ProtocolVersion(number), reader.byte()
    if flags & 1:
        raise malformed("CONNECT with its reserved flag")  # [MQTT-3.1.2-3]
    with_will, will_qos, will_retain = bool(flags & 4), flags >> 3 & 3, bool(flags & 0x20)
    if will_qos > MOST_QOS or (not with_will and (will_qos or will_retain)):
        raise malformed("CONNECT with flags of a will that there is not, or QoS 3")  # [MQTT-3.1.2-11, -12, -13]
    with_password, with_user = bool(flags & 0x40), bool(flags & 0x80)
    if with_password and not with_user and version is V3:
        raise malformed("CONNECT of 3.1.1 with a password and no user name")
    keep_alive = reader.uint16()
    properties = _properties(reader, PacketType.CONNECT, version)
    client_id = reader.text()
    will = None
    if with_will:
        of_will = _properties(reader, WILL, version)
        will = WillMessage(_topic_of_will(reader, version), reader.binary(), will_qos, will_retain, of_will)
    return packets.Connect(
        version,
        client_id,
        clean_start=bool(flags & 2),
        keep_alive=keep_alive,
        user_name=reader.text() if with_user else None,
        password=reader.binary() if with_password else None,
        will=will,
        properties=properties,
    )


def _topic_of_will(reader: Reader, version: ProtocolVersion) -> str:
    try:
        return check_topic(reader.text())
    except PacketError as error:
        raise PacketError(error.reason, str(error), version) from None


def _connack(kind: PacketType, reader: Reader, version: ProtocolVersion) -> Packet:
    flags, number = reader.byte(), reader.byte()
    if flags > 1:
        raise malformed("CONNACK with reserved flags")  # [MQTT-3.2.2-1]
    if version is V5:
        return packets.Connack(_reason(kind, number), bool(flags), read_properties(reader, kind))
    if number not in RETURN_CODES:
        raise malformed(f"CONNACK with the reserved return code {number}")
    return packets.Connack(RETURN_CODES[number], bool(flags))


def _publish(flags: int, reader: Reader, version: ProtocolVersion) -> Packet:
    qos, dup = flags >> 1 & 3, bool(flags & 8)
    if qos > MOST_QOS:
        raise malformed("PUBLISH with QoS 3")  # [MQTT-3.3.1-4]
    if dup and not qos:
        raise malformed("PUBLISH with QoS 0 and DUP")  # [MQTT-3.3.1-2]
    topic = reader.text()
    packet_id = _packet_id(reader) if qos else 0
    properties = _properties(reader, PacketType.PUBLISH, version)
    if topic:
        check_topic(topic)
    elif Property.TOPIC_ALIAS not in properties.values:
        raise protocol_error("PUBLISH with neither a topic nor a topic alias")
    return packets.Publish(topic, reader.rest(), qos, bool(flags & 1), dup, packet_id, properties)


def _ack(kind: PacketType, reader: Reader, version: ProtocolVersion) -> Packet:
    packet_id = _packet_id(reader)
    reason, properties = _short_end(kind, reader, version)
    return packets.PublishAck(kind, packet_id, reason, properties)


def _subscribe(kind: PacketType, reader: Reader, version: ProtocolVersion) -> Packet:
    packet_id = _packet_id(reader)
    properties = _properties(reader, kind, version)
    filters = []
    while reader.left:
        filters.append(_filter_options(check_filter(reader.text()), reader.byte(), version))
    if not filters:
        raise protocol_error("SUBSCRIBE without a topic filter")  # [MQTT-3.8.3-2]
    return packets.Subscribe(packet_id, tuple(filters), properties)


def _filter_options(topic_filter: str, options: int, version: ProtocolVersion) -> FilterOptions:
    qos, handling = options & 3, options >> 4 & 3
    if options & (0xC0 if version is V5 else 0xFC) or qos > MOST_QOS:
        raise malformed("a subscription with reserved options, or QoS 3")  # [MQTT-3.8.3-5]
    if handling > MOST_QOS:
        raise protocol_error("a subscription with Retain Handling 3")
    if options & 4 and topic_filter.startswith(SHARED):
        raise protocol_error("a shared subscription with No Local")  # [MQTT-3.8.3-4]
    return FilterOptions(topic_filter, qos, bool(options & 4), bool(options & 8), handling)


def _suback(kind: PacketType, reader: Reader, version: ProtocolVersion) -> Packet:
    packet_id = _packet_id(reader)
    properties = _properties(reader, kind, version)
    reasons = tuple(_reason(kind, number) for number in reader.rest())
    if not reasons:
        raise malformed("SUBACK without a reason code")
    if version is V3 and any(one > MOST_QOS and one is not ReasonCode.UNSPECIFIED_ERROR for one in reasons):
        raise malformed("SUBACK of 3.1.1 with a return code that is reserved")
    return packets.Suback(packet_id, reasons, properties)


def _unsubscribe(kind: PacketType, reader: Reader, version: ProtocolVersion) -> Packet:
    packet_id = _packet_id(reader)
    properties = _properties(reader, kind, version)
    filters = []
    while reader.left:
        filters.append(check_filter(reader.text()))
    if not filters:
        raise protocol_error("UNSUBSCRIBE without a topic filter")  # [MQTT-3.10.3-2]
    return packets.Unsubscribe(packet_id, tuple(filters), properties)


def _unsuback(kind: PacketType, reader: Reader, version: ProtocolVersion) -> Packet:
    packet_id = _packet_id(reader)
    if version is V3:
        return packets.Unsuback(packet_id)
    properties = read_properties(reader, kind)
    reasons = tuple(_reason(kind, number) for number in reader.rest())
    if not reasons:
        raise malformed("UNSUBACK without a reason code")
    return packets.Unsuback(packet_id, reasons, properties)


def _ping(kind: PacketType, _reader: Reader, _version: ProtocolVersion) -> Packet:
    return packets.Pingreq() if kind is PacketType.PINGREQ else packets.Pingresp()


def _disconnect(kind: PacketType, reader: Reader, version: ProtocolVersion) -> Packet:
    return packets.Disconnect(*_short_end(kind, reader, version))


def _auth(kind: PacketType, reader: Reader, version: ProtocolVersion) -> Packet:
    if version is V3:
        raise malformed("a packet of type 15, which is reserved in 3.1.1")
    reason, properties = _short_end(kind, reader, version)
    if Property.AUTHENTICATION_METHOD not in properties.values and (properties or reason is not ReasonCode.SUCCESS):
        raise protocol_error("AUTH without an authentication method")
    return packets.Auth(reason, properties)


def _short_end(kind: PacketType, reader: Reader, version: ProtocolVersion) -> tuple[ReasonCode, Properties]:
    """Reason and properties, each of which may be left out: success, and none."""
    if version is V3 or not reader.left:
        return ReasonCode.SUCCESS, NO_PROPERTIES
    reason = _reason(kind, reader.byte())
    return reason, read_properties(reader, kind) if reader.left else NO_PROPERTIES


def _reason(kind: PacketType, number: int) -> ReasonCode:
    for one in REASON_CODES[kind]:
        if one == number:
            return one
    raise malformed(f"{kind.name} with the reason code 0x{number:02x}, which it cannot have")


def _packet_id(reader: Reader) -> int:
    packet_id = reader.uint16()
    if not packet_id:
        raise malformed("a packet identifier of 0")  # [MQTT-2.2.1-3]
    return packet_id


def _properties(reader: Reader, place: int, version: ProtocolVersion) -> Properties:
    return read_properties(reader, place) if version is V5 else NO_PROPERTIES


_Decoder = Callable[[PacketType, Reader, ProtocolVersion], Packet]
_DECODERS: Final[Mapping[PacketType, _Decoder]] = MappingProxyType(
    {
        PacketType.CONNECT: _connect,
        PacketType.CONNACK: _connack,
        PacketType.PUBACK: _ack,
        PacketType.PUBREC: _ack,
        PacketType.PUBREL: _ack,
        PacketType.PUBCOMP: _ack,
        PacketType.SUBSCRIBE: _subscribe,
        PacketType.SUBACK: _suback,
        PacketType.UNSUBSCRIBE: _unsubscribe,
        PacketType.UNSUBACK: _unsuback,
        PacketType.PINGREQ: _ping,
        PacketType.PINGRESP: _ping,
        PacketType.DISCONNECT: _disconnect,
        PacketType.AUTH: _auth,
    }
)
