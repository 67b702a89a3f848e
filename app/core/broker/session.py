"""A session: what a broker keeps for a client id, with or without a connection (MQTT 5, section 4.1)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import PacketType, ReasonCode
from app.core.broker.journal import BrokerJournal
from app.core.broker.message import OVERHEAD, Message
from app.core.broker.packets import Packet, Publish, PublishAck, WillMessage
from app.core.broker.rights import ANYBODY, Permit
from app.core.broker.subscriptions import Subscribed
from app.core.broker.unsent import SMALL_MESSAGE, UnsentBytes
from app.core.broker.waiting_room import Backlog, WaitingRoom

MOST_PACKET_IDS: Final = 65_535
IDENTIFIER_BYTES: Final = 8
"""A client may have a thousand filters that fit a topic, with an identifier each."""
_FIRST_REFUSAL: Final = ReasonCode.UNSPECIFIED_ERROR


class ClientOutlet(Protocol):
    """The connection of a session, as far as messages to the client go."""

    window: int
    """The number of messages of QoS 1 and 2 that may be on the way to the client."""

    @property
    def saturated(self) -> bool:
        """True if so much waits for the socket that more should wait elsewhere."""

    def send(self, packet: Packet) -> bool:
        """True if the client takes a packet of this size; False leaves it unsent."""


@dataclass(slots=True)
class Outgoing:
    """A message for one session. `share` is the shared filter that brought it, `kept` is for a retained one."""

    message: Message
    qos: int
    retain: bool
    identifiers: tuple[int, ...] = ()
    share: str = ""
    kept: bool = False
    again: bool = False
    """It was sent on an earlier connection."""
    released: bool = False
    """PUBREC has come: only PUBREL is to be said."""
    packet_id: int = 0
    """The place where it was sent."""
    place: int = 0
    """Its place in the journal; 0 where it is not kept."""

    @property
    def size(self) -> int:
        """Bytes that it takes besides its message, roughly."""
        return OVERHEAD + IDENTIFIER_BYTES * len(self.identifiers)


class ClientSession:
    """The subscriptions, messages and will of a client id. Whoever connects or disconnects it is the broker."""

    def __init__(
        self,
        client_id: str,
        *,
        bounds: BrokerBounds,
        room: WaitingRoom,
        unsent: UnsentBytes,
        counters: Counter[str],
        now: Callable[[], float],
        journal: BrokerJournal,
    ) -> None:
        self.client_id: Final = client_id
        self.durable = False
        """True if all of it is kept: the journal keeps things, and it has lived longer than a connection."""
        self.since = now()
        """The instant at which it was connected, or lost its connection."""
        self.permit: Permit = ANYBODY
        self.owner = ""
        """The owner, who alone may take it up; empty if nobody was asked who they are."""
        self.subscriptions: dict[str, Subscribed] = {}
        self.received: set[int] = set()
        """Packet identifiers of QoS 2 from the client that it has not released."""
        self.inflight: dict[int, Outgoing] = {}
        """The messages on their way, by packet identifier, in the order in which they were sent first."""
        self.waiting = Backlog()
        self.expiry: float = 0
        """Seconds that it lives without a connection."""
        self.ends_at: float | None = None
        self.will_at: float | None = None
        self.outlet: ClientOutlet | None = None
        self._bounds = bounds
        self._room = room
        self._unsent = unsent
        self._counters = counters
        self._now = now
        self._journal = journal
        self._will: WillMessage | None = None
        self._on_record = False
        """True if the journal knows of it."""
        self._last_id = 0
        self._again: deque[int] = deque()
        """Packet identifiers in flight that have to be said again on this connection."""

    @property
    def will(self) -> WillMessage | None:
        """The will of its client, until it is published or deleted."""
        return self._will

    @will.setter
    def will(self, will: WillMessage | None) -> None:
        old, self._will = self._will, will
        self._room.will_bytes += (0 if will is None else will.size) - (0 if old is None else old.size)

    @property
    def ready(self) -> bool:
        """True if a message would leave at once."""
        outlet = self.outlet
        if outlet is None or outlet.saturated or self.waiting or self._again:
            return False
        return len(self.inflight) < outlet.window

    @property
    def full(self) -> bool:
        """True if a message that has to wait would make the oldest one go."""
        return len(self.waiting) >= self._bounds.waiting

    def admit(self, permit: Permit) -> None:
        """Be of a client whose CONNECT was accepted. A door that asks nobody leaves it to its owner."""
        self.permit = permit
        self.owner = permit.owner or self.owner

    def open_to(self, permit: Permit) -> bool:
        """Return True if a client with this permit may take it up, or end it."""
        return not (permit.owner and self.owner) or permit.owner == self.owner

    def live_for(self, expiry: float) -> None:
        """The number of seconds that it lives without a connection."""
        self.expiry = expiry
        self.durable = self.durable or (expiry > 0 and self._journal.keeps)

    def changed(self) -> None:
        """Its will, its expiry or its connection is another one: tell the journal, if that has to know."""
        kept = self.durable or self.will is not None
        if kept or self._on_record:
            self._on_record = kept
            self._journal.session_changed(self.client_id)

    def subscribe(self, subscribed: Subscribed) -> None:
        """Add or replace a subscription."""
        name = subscribed.options.topic_filter
        self.subscriptions[name] = subscribed
        if self.durable:
            self._journal.subscription_changed(self.client_id, name)

    def unsubscribe(self, topic_filter: str) -> None:
        """Remove a subscription, where there is one."""
        if self.subscriptions.pop(topic_filter, None) is not None and self.durable:
            self._journal.subscription_changed(self.client_id, topic_filter)

    def receive(self, packet_id: int) -> None:
        """A message of QoS 2 has come, and was published."""
        self.received.add(packet_id)
        self._room.received += 1
        if self.durable:
            self._journal.received_changed(self.client_id, packet_id)

    def release(self, packet_id: int) -> bool:
        """True if the client was to release this one."""
        if packet_id not in self.received:
            return False
        self.received.discard(packet_id)
        self._room.received -= 1
        if self.durable:
            self._journal.received_changed(self.client_id, packet_id)
        return True

    def deliver(self, outgoing: Outgoing) -> None:
        """Send it, keep it for later, or drop and count it; nothing if the client may not get it."""
        if not self.permit.may_receive(outgoing.message.topic):
            return
        if outgoing.qos == 0:
            if self.outlet is None:
                return  # [MQTT-3.1.2-5]: QoS 0 need not be kept, and nobody counts on it
            # Behind one that waits, which may be of its topic, it waits, too: the client ends with the last of them.
            if not outgoing.kept and not self._unsent.full and not self.waiting.unsure:
                if self.outlet.saturated:
                    self._drop("slow_reader")
                else:
                    self._send_once(outgoing)
                return
        while self.waiting and self.full:
            self.forget_oldest("queue_full")
        if not self._room.take(outgoing) and not self._room.take_from_fullest(outgoing):
            self._drop("memory_full")
            return
        if self.durable and outgoing.qos:
            self._journal.refer(self.client_id, outgoing)
        self.waiting.append(outgoing)
        self.pump()

    def forget_oldest(self, reason: str) -> None:
        """Drop the message that has waited longest, and count it by the reason."""
        self._let_go(self.waiting.popleft())
        self._drop(reason)

    def forget_expired(self, now: float) -> None:
        """Drop and count the messages that have waited for too long."""
        for one in self.waiting.take_expired(now):
            self._let_go(one)
            self._drop("expired")

    def restore(self, place: int, outgoing: Outgoing) -> bool:
        """A message from the disk, in the order of places; False if there is no room for it."""
        if not self._room.take(outgoing):
            self._drop("memory_full")
            return False
        self._journal.restore_reference(place, outgoing)
        if outgoing.packet_id:
            self.inflight[outgoing.packet_id] = outgoing
            self._last_id = outgoing.packet_id
        else:
            self.waiting.append(outgoing)
        return True

    def attach(self, outlet: ClientOutlet) -> None:
        """Go on over a connection: what is on the way is said again first [MQTT-4.4.0-1]."""
        self.outlet = outlet
        self.since = self._now()
        self.ends_at = self.will_at = None
        self.changed()
        for one in self.inflight.values():
            one.again = True
        self._again = deque(self.inflight)
        self.pump()

    def detach(self) -> None:
        """Be without a connection."""
        self.outlet = None
        self.since = self._now()
        self.changed()
        for _ in range(len(self.waiting)):
            one = self.waiting.popleft()
            if one.qos:
                self.waiting.append(one)
            else:
                self._let_go(one)

    def end(self) -> list[Outgoing]:
        """Forget all; what came by a share and may go to another member [MQTT-4.8.2-4]."""
        held = [*self.inflight.values(), *self.waiting]
        for one in held:
            self._let_go(one)
        self.inflight.clear()
        self.waiting.clear()
        for packet_id in [*self.received]:
            self.release(packet_id)
        for topic_filter in [*self.subscriptions]:
            self.unsubscribe(topic_filter)
        self.changed()
        return [one for one in held if one.share and one.qos == 1]

    def acknowledge(self, packet: PublishAck) -> Packet | None:
        """A PUBACK, PUBREC or PUBCOMP; what is said to it."""
        outgoing = self.inflight.get(packet.packet_id)
        kind = packet.type
        if kind is PacketType.PUBREC:
            return self._received(packet, outgoing)
        expected = outgoing is not None and (
            (kind is PacketType.PUBACK and outgoing.qos == 1) or (kind is PacketType.PUBCOMP and outgoing.released)
        )
        if expected:
            self._forget(packet.packet_id)
            self.pump()
        else:
            self._counters["broker.unknown_acknowledgement"] += 1
        return None

    def pump(self) -> None:
        """Send what may be sent now."""
        outlet = self.outlet
        if outlet is None:
            return
        # A client may come back with a smaller Receive Maximum than it had.
        while self._again and len(self.inflight) - len(self._again) < outlet.window:
            again = self.inflight.get(self._again[0])
            if not self._may_send(again, outlet):
                return
            self._say_again(self._again.popleft(), again)
        while self.waiting and not self._again:
            if self.waiting.first.qos and len(self.inflight) >= outlet.window:
                return
            if not self._may_send(self.waiting.first, outlet):
                return
            outgoing = self.waiting.popleft()
            if not self._may_have(outgoing):
                self._let_go(outgoing)
            elif outgoing.qos and not outgoing.message.expired(self._now()):
                packet_id = self._next_id()
                self.inflight[packet_id] = outgoing
                outgoing.packet_id = packet_id
                self._moved(outgoing)
                self._send(packet_id, outgoing)
            else:
                self._send_once(outgoing)
                self._let_go(outgoing)

    def _say_again(self, packet_id: int, outgoing: Outgoing | None) -> None:
        if outgoing is None:
            return  # it was acknowledged meanwhile
        if self._may_have(outgoing):
            self._send(packet_id, outgoing)
        else:
            self._forget(packet_id)

    def _may_send(self, outgoing: Outgoing | None, outlet: ClientOutlet) -> bool:
        """False while its socket, or all of them together, have to take other things first."""
        is_large = outgoing is not None and outgoing.message.size > SMALL_MESSAGE
        if self._unsent.full and (is_large or outlet.saturated):
            self._unsent.wait(self)
            return False
        return not outlet.saturated

    def _may_have(self, outgoing: Outgoing) -> bool:
        """True if the client may get it; the session may be from before a restart, when other rules counted."""
        return outgoing.released or self.permit.may_receive(outgoing.message.topic)

    def _received(self, packet: PublishAck, outgoing: Outgoing | None) -> Packet | None:
        if outgoing is None or outgoing.qos != 2:  # noqa: PLR2004 - it is the number of the standard
            self._counters["broker.unknown_acknowledgement"] += 1
            return PublishAck(PacketType.PUBREL, packet.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        if packet.reason >= _FIRST_REFUSAL:
            self._forget(packet.packet_id)
            self.pump()
            return None
        outgoing.released = True
        self._moved(outgoing)
        return PublishAck(PacketType.PUBREL, packet.packet_id)

    def _send(self, packet_id: int, outgoing: Outgoing) -> None:
        if self.outlet is None:
            return
        if outgoing.released:
            self.outlet.send(PublishAck(PacketType.PUBREL, packet_id))
        elif self.outlet.send(self._publish(outgoing, packet_id)):
            self._counters["broker.sent"] += 1
        else:
            self._forget(packet_id)  # [MQTT-3.1.2-25]: as if it had been acknowledged
            self._drop("too_large")

    def _send_once(self, outgoing: Outgoing) -> None:
        if outgoing.message.expired(self._now()):
            self._drop("expired")
        elif self.outlet is None:
            pass
        elif self.outlet.send(self._publish(outgoing, 0)):
            self._counters["broker.sent"] += 1
        else:
            self._drop("too_large")

    def _publish(self, outgoing: Outgoing, packet_id: int) -> Publish:
        message = outgoing.message
        return Publish(
            message.topic,
            message.payload,
            outgoing.qos,
            outgoing.retain,
            outgoing.again,
            packet_id,
            message.properties_for(outgoing.identifiers, self._now()),
        )

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % MOST_PACKET_IDS + 1
            if self._last_id not in self.inflight:
                return self._last_id

    def _forget(self, packet_id: int) -> None:
        self._let_go(self.inflight.pop(packet_id))

    def _moved(self, outgoing: Outgoing) -> None:
        if outgoing.place:
            self._journal.reference_changed(self.client_id, outgoing.place)

    def _let_go(self, outgoing: Outgoing) -> None:
        self._room.give(outgoing)
        if outgoing.place:
            self._journal.drop(self.client_id, outgoing)

    def _drop(self, reason: str) -> None:
        self._counters[f"broker.dropped.{reason}"] += 1
