"""The fifteen packets of MQTT 5 and 3.1.1 as values. A packet of 3.1.1 has no properties, and success as its reason."""

from __future__ import annotations

from dataclasses import dataclass
from sys import getsizeof

from app.core.broker.codes import PacketType, ProtocolVersion, ReasonCode
from app.core.broker.properties import NO_PROPERTIES, Properties


@dataclass(frozen=True, slots=True)
class WillMessage:
    """The message that is published when the connection ends without DISCONNECT (section 3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        return getsizeof(self.topic) + len(self.payload) + self.properties.size


@dataclass(frozen=True, slots=True)
class Connect:
    """A client asks for a connection (section 3.1). `keep_alive` is in seconds; 0 is none."""

    version: ProtocolVersion
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    user_name: str | None = None
    password: bytes | None = None
    will: WillMessage | None = None
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connack:
    """The server's answer to CONNECT (section 3.2)."""

    reason: ReasonCode = ReasonCode.SUCCESS
    session_present: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)  # nobody changes one: to be frozen makes it take three times as long to make
class Publish:
    """A message (section 3.3). `packet_id` is 0 with QoS 0, and `topic` may be empty where an alias stands for it."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)  # as above
class PublishAck:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (sections 3.4 to 3.7), as `type` says."""

    type: PacketType
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """A topic filter of SUBSCRIBE with its options (section 3.8.3.1).

    `retain_handling`: 0 sends retained messages, 1 does so for a new subscription, 2 does not.
    """

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A client subscribes (section 3.8)."""

    packet_id: int
    filters: tuple[FilterOptions, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Suback:
    """The answer to SUBSCRIBE (section 3.9), with one reason for each filter."""

    packet_id: int
    reasons: tuple[ReasonCode, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A client unsubscribes (section 3.10)."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsuback:
    """The answer to UNSUBSCRIBE (section 3.11); 3.1.1 has no reasons."""

    packet_id: int
    reasons: tuple[ReasonCode, ...] = ()
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pingreq:
    """A client shows that it is alive (section 3.12)."""


@dataclass(frozen=True, slots=True)
class Pingresp:
    """The answer to PINGREQ (section 3.13)."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The last packet of a connection (section 3.14)."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    """A step of enhanced authentication (section 3.15), in MQTT 5 alone."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect
    | Connack
    | Publish
    | PublishAck
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
