"""Packets as bytes. ValueError when a packet is one that MQTT cannot say, which is a mistake of ours."""

from __future__ import annotations

from functools import singledispatch
from typing import Final

from app.core.broker import packets
from app.core.broker.codes import RETURN_CODES, PacketType, ProtocolVersion, ReasonCode
from app.core.broker.packets import Packet
from app.core.broker.properties import WILL, Properties, write_properties
from app.core.broker.wire import binary_of, text_of, variable_of

V3, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
_REFUSAL: Final = {reason: number for number, reason in RETURN_CODES.items()}
_FLAGS: Final = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}


def encode(packet: Packet, version: ProtocolVersion) -> bytes:
    """The packet in this version; a CONNECT has one itself. 3.1.1 leaves out what it cannot say."""
    if isinstance(packet, packets.Publish):  # these two are nearly all, and a dispatch takes as long as their bytes
        return _publish(packet, version)
    if isinstance(packet, packets.PublishAck):
        return _ack(packet, version)
    return _encode(packet, version)


@singledispatch
def _encode(packet: Packet, version: ProtocolVersion) -> bytes:
    raise TypeError(f"{type(packet).__name__} is no packet of {version.name}")


def _publish(packet: packets.Publish, version: ProtocolVersion) -> bytes:
    if bool(packet.packet_id) != bool(packet.qos):
        raise ValueError("a packet identifier belongs to QoS 1 and 2, and to these alone")  # [MQTT-2.2.1-2]
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    head = [text_of(packet.topic)]
    if packet.qos:
        head.append(packet.packet_id.to_bytes(2))
    if version is V5:
        head.append(write_properties(packet.properties, PacketType.PUBLISH))
    return _whole(PacketType.PUBLISH, b"".join((*head, packet.payload)), flags)


def _ack(packet: packets.PublishAck, version: ProtocolVersion) -> bytes:
    end = _short_end(packet.type, packet.reason, packet.properties, version)
    return _whole(packet.type, packet.packet_id.to_bytes(2) + end)


@_encode.register
def _subscribe(packet: packets.Subscribe, version: ProtocolVersion) -> bytes:
    pieces = [_head(packet.packet_id, packet.properties, PacketType.SUBSCRIBE, version)]
    for one in packet.filters:
        options = one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
        pieces += [text_of(one.topic_filter), bytes((options if version is V5 else one.qos,))]
    return _whole(PacketType.SUBSCRIBE, b"".join(pieces))


@_encode.register
def _unsubscribe(packet: packets.Unsubscribe, version: ProtocolVersion) -> bytes:
    head = _head(packet.packet_id, packet.properties, PacketType.UNSUBSCRIBE, version)
    return _whole(PacketType.UNSUBSCRIBE, b"".join((head, *map(text_of, packet.filters))))


@_encode.register
def _unsuback(packet: packets.Unsuback, version: ProtocolVersion) -> bytes:
    head = _head(packet.packet_id, packet.properties, PacketType.UNSUBACK, version)
    return _whole(PacketType.UNSUBACK, head + (bytes(packet.reasons) if version is V5 else b""))


@_encode.register
def _pingreq(_packet: packets.Pingreq, _version: ProtocolVersion) -> bytes:
    return _whole(PacketType.PINGREQ, b"")


@_encode.register
def _pingresp(_packet: packets.Pingresp, _version: ProtocolVersion) -> bytes:
    return _whole(PacketType.PINGRESP, b"")


@_encode.register
def _disconnect(packet: packets.Disconnect, version: ProtocolVersion) -> bytes:
    return _whole(PacketType.DISCONNECT, _short_end(PacketType.DISCONNECT, packet.reason, packet.properties, version))


@_encode.register
def _connect(packet: packets.Connect, _version: ProtocolVersion) -> bytes:
    version, will = packet.version, packet.will
    flags = packet.clean_start << 1 | (packet.password is not None) << 6 | (packet.user_name is not None) << 7
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
    pieces = [b"\0\4MQTT", bytes((version, flags)), packet.keep_alive.to_bytes(2)]
    if version is V5:
        pieces.append(write_properties(packet.properties, PacketType.CONNECT))
    pieces.append(text_of(packet.client_id))
    if will is not None:
        pieces += [write_properties(will.properties, WILL)] if version is V5 else []
        pieces += [text_of(will.topic), binary_of(will.payload)]
    if packet.user_name is not None:
        pieces.append(text_of(packet.user_name))
    if packet.password is not None:
        pieces.append(binary_of(packet.password))
    return _whole(PacketType.CONNECT, b"".join(pieces))


@_encode.register
def _connack(packet: packets.Connack, version: ProtocolVersion) -> bytes:
    if version is V5:
        end = write_properties(packet.properties, PacketType.CONNACK)
        return _whole(PacketType.CONNACK, bytes((packet.session_present, packet.reason)) + end)
    refusal = _REFUSAL.get(packet.reason, _REFUSAL[ReasonCode.SERVER_UNAVAILABLE])
    return _whole(PacketType.CONNACK, bytes((packet.session_present, refusal)))


@_encode.register
def _suback(packet: packets.Suback, version: ProtocolVersion) -> bytes:
    head = _head(packet.packet_id, packet.properties, PacketType.SUBACK, version)
    if version is V5:
        return _whole(PacketType.SUBACK, head + bytes(packet.reasons))
    return _whole(PacketType.SUBACK, head + bytes(min(one, ReasonCode.UNSPECIFIED_ERROR) for one in packet.reasons))


@_encode.register
def _auth(packet: packets.Auth, version: ProtocolVersion) -> bytes:
    if version is V3:
        raise ValueError("3.1.1 has no AUTH")
    return _whole(PacketType.AUTH, _short_end(PacketType.AUTH, packet.reason, packet.properties, version))


def _head(packet_id: int, properties: Properties, kind: PacketType, version: ProtocolVersion) -> bytes:
    return packet_id.to_bytes(2) + (write_properties(properties, kind) if version is V5 else b"")


def _short_end(kind: PacketType, reason: ReasonCode, properties: Properties, version: ProtocolVersion) -> bytes:
    if version is V3 or (reason is ReasonCode.SUCCESS and not properties):
        return b""
    return bytes((reason,)) + (write_properties(properties, kind) if properties else b"")


def _whole(kind: PacketType, body: bytes, flags: int | None = None) -> bytes:
    first = kind << 4 | (_FLAGS.get(kind, 0) if flags is None else flags)
    return b"".join((bytes((first,)), variable_of(len(body)), body))
