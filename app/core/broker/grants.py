"""Grants of a broker to a CONNECT that it accepts, as CONNACK tells them (MQTT 5, section 3.2.2.3)."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import Property, ProtocolVersion
from app.core.broker.packets import Connack, Connect
from app.core.broker.properties import Properties, Value
from app.core.broker.rights import Permit

V3 = ProtocolVersion.V3_1_1


@dataclass(frozen=True, slots=True)
class ConnectGrant:
    """`expiry` and `keep_alive` are in seconds, `window` is how many messages of QoS 1 and 2 the client takes.

    `aliases` is how many topic aliases it may be given.
    """

    expiry: int
    keep_alive: int
    window: int
    aliases: int
    connack: Connack


@dataclass(frozen=True, slots=True)
class PendingConnect:
    """A CONNECT that may be accepted. It waits for some seconds if its client id is taken over again and again."""

    connect: Connect
    client_id: str
    granted: ConnectGrant
    permit: Permit
    wait: float


def grant(packet: Connect, bounds: BrokerBounds, assigned: str) -> ConnectGrant:
    """Return as much as the client asks for, and as the bounds allow. `assigned` is the client id that it is given."""
    said, window = packet.properties, bounds.inflight
    if packet.version is V3:
        return ConnectGrant(0 if packet.clean_start else bounds.session_expiry, packet.keep_alive, window, 0, Connack())
    asked = said.number(Property.SESSION_EXPIRY_INTERVAL)
    expiry = min(bounds.session_expiry, asked)
    keep_alive = packet.keep_alive if 0 < packet.keep_alive <= bounds.keep_alive else bounds.keep_alive
    values: dict[Property, Value] = {
        Property.RECEIVE_MAXIMUM: bounds.inflight,
        Property.MAXIMUM_PACKET_SIZE: bounds.packet_bytes,
        Property.TOPIC_ALIAS_MAXIMUM: bounds.aliases,
    }
    if assigned:
        values[Property.ASSIGNED_CLIENT_IDENTIFIER] = assigned
    if keep_alive != packet.keep_alive:
        values[Property.SERVER_KEEP_ALIVE] = keep_alive
    if expiry != asked:
        values[Property.SESSION_EXPIRY_INTERVAL] = expiry
    window = min(window, said.number(Property.RECEIVE_MAXIMUM, window))
    aliases = min(bounds.given_aliases, said.number(Property.TOPIC_ALIAS_MAXIMUM))
    return ConnectGrant(expiry, keep_alive, window, aliases, Connack(properties=Properties(values)))
