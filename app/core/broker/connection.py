"""One connection of a client to a broker: the rules from CONNECT to DISCONNECT (MQTT 5, chapters 3 and 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from app.core.broker import packets
from app.core.broker.aliases import GivenAliases, TakenAliases
from app.core.broker.codes import (
    REASON_CODES,
    PacketError,
    PacketType,
    Property,
    ProtocolVersion,
    ReasonCode,
    protocol_error,
)
from app.core.broker.encoder import encode
from app.core.broker.filters import SHARED
from app.core.broker.grants import PendingConnect, grant
from app.core.broker.handouts import RetainedHandout
from app.core.broker.message import Message, expiry_of, handed_on
from app.core.broker.packets import Connack, Connect, Packet, Publish, PublishAck
from app.core.broker.properties import NO_PROPERTIES, Properties
from app.core.broker.rights import ClientCertificate, Permit
from app.core.broker.session import ClientSession
from app.core.broker.silence import ClientSilence
from app.core.broker.subscriptions import Subscribed, inner_filter
from app.core.broker.topic_names import check_topic_name

if TYPE_CHECKING:
    from app.core.broker.broker import Broker

V3, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
_UNANSWERED: Final = {ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR}
"""The faults that a connection gets no answer to: somebody who begins like this is most likely no client of MQTT."""
_UNANSWERED_IN_V3: Final = {*_UNANSWERED, ReasonCode.TOPIC_NAME_INVALID}
"""3.1.1 has no return code for the topic of a will [MQTT-3.2.2-6 of 3.1.1]."""


class ClientLink(Protocol):
    """The socket of a connection."""

    @property
    def saturated(self) -> bool:
        """True if so much waits for the socket that more should wait elsewhere."""

    @property
    def unread(self) -> bool:
        """True if nothing is read from the socket at present, whatever the client sends."""

    def write(self, data: bytes) -> None:
        """Send bytes, in order, without waiting."""

    def close(self) -> None:
        """Close the socket when all was sent."""


class BrokerConnection:
    """The owner of the socket calls `receive` with each packet, `refuse` with a fault, and `lost` at the end."""

    def __init__(
        self, broker: Broker, link: ClientLink, peer: str = "", certificate: ClientCertificate | None = None
    ) -> None:
        self.version = V5
        self.window = broker.bounds.inflight
        self._broker = broker
        self._link = link
        self._peer = peer
        self._certificate = certificate
        self._silence = ClientSilence(broker.bounds, broker.now())
        self._session: ClientSession | None = None
        self._pending: PendingConnect | None = None
        self._largest = 0
        self._aliases = TakenAliases(broker.bounds)
        self._given = GivenAliases()
        self._handout = RetainedHandout(broker)
        self._may_last = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """True if nothing is read any more."""
        return self._closed

    @property
    def connected(self) -> bool:
        """True if CONNECT was accepted."""
        return self._session is not None

    @property
    def largest(self) -> int:
        """Bytes of the largest packet that is taken now."""
        bounds = self._broker.bounds
        return bounds.packet_bytes if self.connected else bounds.connect_bytes

    @property
    def saturated(self) -> bool:
        """True if messages should wait in the session."""
        return self._link.saturated

    @property
    def wait(self) -> float | None:
        """Seconds after which the owner of the socket calls `resume`, and until which it hands over nothing."""
        if self._closed:
            return None
        return self._handout.wait if self._pending is None else self._pending.wait

    def receive(self, packet: Packet) -> None:
        """Do what a packet asks for. Faults end the connection."""
        if self._closed:
            return
        self._silence.heard(self._broker.now())
        try:
            self._take(packet)
        except PacketError as error:
            self.refuse(error)

    def resume(self) -> None:
        """Accept the CONNECT that has waited, or go on with what the client has asked for."""
        pending, self._pending = self._pending, None
        if self._closed:
            return
        if pending is None:
            self._handout.go_on()
            return
        try:
            self._begin(pending)
        except PacketError as error:
            self.refuse(error)

    def read(self, held: int, *, anew: bool) -> None:
        """Bytes were read, and the packets among them received; `held` are of one that is not whole, begun `anew`."""
        if not self._closed:
            self._silence.read(self._broker.now(), inside=held > 0)
            self._broker.hold_unfinished(self, held, anew=anew)

    def refuse(self, error: PacketError) -> None:
        """End the connection for a fault, and tell the client where its version can [MQTT-4.13.1-1]."""
        if self._closed:
            return
        self._broker.counters[f"broker.refused.{error.reason.name.lower()}"] += 1
        if self.connected:
            self.disconnect(error.reason, str(error))
        else:
            self.version = error.version or self.version
            unanswered = _UNANSWERED if self.version is V5 else _UNANSWERED_IN_V3
            if error.reason in REASON_CODES[PacketType.CONNACK] - unanswered:
                self.send(Connack(error.reason))
            self._close()

    def disconnect(self, reason: ReasonCode, sentence: str = "") -> None:
        """End the connection from this side. 3.1.1 cannot be told why."""
        if self._closed:
            return
        if self.version is V5 and self.connected:
            said = Properties({Property.REASON_STRING: sentence}) if sentence else NO_PROPERTIES
            if not self.send(packets.Disconnect(reason, said)):
                self.send(packets.Disconnect(reason))
        self._close()

    def lost(self) -> None:
        """The socket has ended."""
        self._close()

    def drained(self) -> None:
        """The socket takes more again."""
        if self._session is not None:
            self._session.pump()

    def check(self, now: float) -> None:
        """End a connection that has been silent for too long."""
        if self._link.unread:
            self._silence.unread(now)
        if (end := self._silence.end(now)) is not None:
            self._broker.counters[f"broker.refused.{end.name}"] += 1
            self.disconnect(end.reason, end.sentence)

    def recheck(self) -> None:
        """End the connection of a client who may not be here any more."""
        if self._session is not None and not self._closed and not self._session.permit.valid():
            self._broker.counters["broker.refused.not_authorized"] += 1
            self.disconnect(ReasonCode.NOT_AUTHORIZED)

    def send(self, packet: Packet) -> bool:
        """True if the client takes a packet of this size [MQTT-3.1.2-24]; False leaves it unsent."""
        if isinstance(packet, Publish) and (short := self._given.shortened(packet)) is not None and self._write(short):
            self._given.sent(short)
            return True
        return self._write(packet)

    def _write(self, packet: Packet) -> bool:
        data = encode(packet, self.version)
        if not self._takes(data):
            return False
        self._link.write(data)
        return True

    def _takes(self, data: bytes) -> bool:
        return not self._largest or len(data) <= self._largest

    def _answer(self, packet: packets.Suback | packets.Unsuback) -> None:
        if not self.send(packet):
            raise PacketError(ReasonCode.PACKET_TOO_LARGE, "the answer is larger than the client takes")

    def _take(self, packet: Packet) -> None:
        session = self._session
        if session is None:
            if not isinstance(packet, Connect):
                raise protocol_error("the first packet is no CONNECT")  # [MQTT-3.1.0-1]
            self._connect(packet)
            return
        match packet:
            case Publish():
                self._publish(packet, session)
            case PublishAck():
                self._acknowledged(packet, session)
            case packets.Subscribe():
                self._subscribe(packet, session)
            case packets.Unsubscribe():
                self._unsubscribe(packet, session)
            case packets.Pingreq():
                self.send(packets.Pingresp())
            case packets.Disconnect():
                self._leave(packet, session)
            case _:
                raise protocol_error(f"{type(packet).__name__.upper()} is not for a server now")

    def _connect(self, packet: Connect) -> None:
        broker, bounds, said = self._broker, self._broker.bounds, packet.properties
        self.version = packet.version
        if broker.unavailable:
            raise PacketError(ReasonCode.SERVER_UNAVAILABLE, "what the broker keeps cannot be written now")
        if broker.taken > bounds.connections:
            raise PacketError(ReasonCode.SERVER_BUSY, "the broker has as many connections as it may have")
        if not broker.peers.may_connect(self._peer):
            raise PacketError(ReasonCode.CONNECTION_RATE_EXCEEDED, "this address connects too often")
        self._largest = said.number(Property.MAXIMUM_PACKET_SIZE)
        client_id = packet.client_id
        if Property.AUTHENTICATION_METHOD in said.values:
            raise PacketError(ReasonCode.BAD_AUTHENTICATION_METHOD, "enhanced authentication is not supported")
        if len(client_id.encode()) > bounds.client_id_bytes or (
            not client_id and self.version is V3 and not packet.clean_start  # [MQTT-3.1.3-8 of 3.1.1]
        ):
            raise PacketError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client identifier is too long or missing")
        assigned = "" if client_id else broker.new_client_id()
        client_id = client_id or assigned
        granted = grant(packet, bounds, assigned)
        if not self._takes(encode(granted.connack, self.version)):
            raise PacketError(ReasonCode.PACKET_TOO_LARGE, "the client takes no packet as large as CONNACK")
        permit = self._admit(packet, client_id)
        if packet.will is not None:
            check_topic_name(packet.will.topic, bounds)
            if not permit.may_publish(packet.will.topic):
                raise PacketError(ReasonCode.NOT_AUTHORIZED, "the will is for a topic that is not allowed")
        wait = 0.0 if broker.connection_of(client_id) is None else broker.take_overs.wait(client_id)
        pending = PendingConnect(packet, client_id, granted, permit, wait)
        if not wait:
            self._begin(pending)
            return
        broker.counters["broker.backed_off"] += 1
        self._silence.wait_until(broker.now() + wait)
        self._pending = pending

    def _begin(self, pending: PendingConnect) -> None:
        broker, packet, client_id, granted = self._broker, pending.connect, pending.client_id, pending.granted
        self._check_owner(client_id, pending.permit)
        broker.check_room(client_id, packet.will)
        broker.take_over(client_id)
        session, present = broker.session_for(packet, client_id)
        session.admit(pending.permit)
        session.will = packet.will  # of a resumed session it replaces the one before [MQTT-3.1.2-9]
        session.live_for(granted.expiry)
        self._may_last = granted.expiry > 0
        self.window = granted.window
        self._given = GivenAliases(granted.aliases)
        self._silence.connect(granted.keep_alive, broker.now())
        self._session = session
        broker.counters["broker.connected"] += 1
        self.send(replace(granted.connack, session_present=present))
        session.attach(self)

    def _admit(self, packet: Connect, client_id: str) -> Permit:
        """The rights of whoever connects, also to the session of this client id [MQTT-3.1.4-2]."""
        permit = self._broker.door.admit(packet.user_name, packet.password, self._certificate)
        if isinstance(permit, ReasonCode):
            raise PacketError(permit, "the user name, the password or the certificate is not valid")
        self._check_owner(client_id, permit)
        return permit

    def _check_owner(self, client_id: str, permit: Permit) -> None:
        known = self._broker.session_now(client_id)
        if not permit.valid() or (known is not None and not known.open_to(permit)):
            raise PacketError(ReasonCode.NOT_AUTHORIZED, "the session of this client identifier is somebody else's")

    def _publish(self, packet: Publish, session: ClientSession) -> None:
        topic = self._aliases.topic_of(packet)
        broker = self._broker
        if packet.qos == 2:  # noqa: PLR2004 - it is the number of the standard
            if packet.packet_id in session.received:  # [MQTT-4.3.3-10]: it was published already
                self.send(PublishAck(PacketType.PUBREC, packet.packet_id))
                return
            broker.check_window(session)
        reason = self._published(packet, topic, session)
        if packet.qos == 0:
            return
        if packet.qos == 2 and reason < ReasonCode.UNSPECIFIED_ERROR:  # noqa: PLR2004
            session.receive(packet.packet_id)
        kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
        self.send(PublishAck(kind, packet.packet_id, reason if self.version is V5 else ReasonCode.SUCCESS))

    def _published(self, packet: Publish, topic: str, session: ClientSession) -> ReasonCode:
        broker = self._broker
        if not session.permit.publishes(topic):
            broker.counters["broker.denied.publish"] += 1
            return ReasonCode.NOT_AUTHORIZED
        message = Message(
            topic=topic,
            payload=packet.payload,
            qos=packet.qos,
            retain=packet.retain,
            publisher=session.client_id,
            properties=handed_on(packet.properties),
            expires_at=expiry_of(packet.properties, broker.now()),
        )
        if message.retain and message.qos and self.version is V5 and not broker.retained.has_room(message):
            broker.counters["broker.dropped.retained_full"] += 1
            return ReasonCode.QUOTA_EXCEEDED  # whoever cannot be told has it delivered, and not retained
        broker.counters["broker.received"] += 1
        return ReasonCode.SUCCESS if broker.publish(message) else ReasonCode.NO_MATCHING_SUBSCRIBERS

    def _acknowledged(self, packet: PublishAck, session: ClientSession) -> None:
        if packet.type is not PacketType.PUBREL:
            if (said := session.acknowledge(packet)) is not None:
                self.send(said)
            return
        known = session.release(packet.packet_id)
        reason = ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self.send(PublishAck(PacketType.PUBCOMP, packet.packet_id, reason))

    def _subscribe(self, packet: packets.Subscribe, session: ClientSession) -> None:
        identifier = packet.properties.number(Property.SUBSCRIPTION_IDENTIFIER)
        reasons, retained = [], []
        for options in packet.filters:
            reason, new = self._subscribed(Subscribed(options, identifier), session)
            reasons.append(reason)
            wanted = options.retain_handling == 0 or (options.retain_handling == 1 and new)
            if reason < ReasonCode.UNSPECIFIED_ERROR and wanted and not options.topic_filter.startswith(SHARED):
                retained.append(options)
        self._answer(packets.Suback(packet.packet_id, tuple(reasons)))
        self._handout.ask(session, len(packet.filters), retained, (identifier,) if identifier else ())

    def _subscribed(self, subscribed: Subscribed, session: ClientSession) -> tuple[ReasonCode, bool]:
        bounds, options = self._broker.bounds, subscribed.options
        name = options.topic_filter
        if len(name.encode()) > bounds.topic_bytes or name.count("/") >= bounds.levels:
            return ReasonCode.TOPIC_FILTER_INVALID, False
        full = len(session.subscriptions) >= bounds.subscriptions or not self._broker.has_room_for_subscriptions
        inner = inner_filter(name)
        if not session.permit.may_subscribe(inner, shared=inner != name):
            self._broker.counters["broker.denied.subscribe"] += 1
            return ReasonCode.NOT_AUTHORIZED, False
        if name not in session.subscriptions and full:
            return ReasonCode.QUOTA_EXCEEDED, False
        session.subscribe(subscribed)
        new = self._broker.subscriptions.put(session.client_id, subscribed)
        return ReasonCode(options.qos), new

    def _unsubscribe(self, packet: packets.Unsubscribe, session: ClientSession) -> None:
        reasons = []
        for name in packet.filters:
            session.unsubscribe(name)
            removed = self._broker.subscriptions.remove(session.client_id, name)
            reasons.append(ReasonCode.SUCCESS if removed else ReasonCode.NO_SUBSCRIPTION_EXISTED)
        self._answer(packets.Unsuback(packet.packet_id, tuple(reasons)))
        self._handout.ask(session, len(packet.filters))

    def _leave(self, packet: packets.Disconnect, session: ClientSession) -> None:
        if Property.SESSION_EXPIRY_INTERVAL in packet.properties.values:
            asked = packet.properties.number(Property.SESSION_EXPIRY_INTERVAL)
            if asked and not self._may_last:
                raise protocol_error("DISCONNECT with a session expiry that CONNECT had not")  # [MQTT-3.14.2-2]
            session.expiry = min(self._broker.bounds.session_expiry, asked)
        if packet.reason is ReasonCode.SUCCESS:
            session.will = None  # [MQTT-3.14.4-3]
        self._close()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        broker, session = self._broker, self._session
        broker.connections.discard(self)
        broker.unfinished.note(self, 0)
        broker.peers.leave(self._peer)
        if session is not None and session.outlet is self:
            broker.counters["broker.disconnected"] += 1
            broker.left(session)
        self._link.close()  # what the client sees happens last
