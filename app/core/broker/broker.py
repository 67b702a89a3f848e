"""A broker of MQTT 5 and 3.1.1: sessions, subscriptions, retained messages and wills. No socket, no clock, no wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import PacketError, Property, ReasonCode
from app.core.broker.connection import BrokerConnection, ClientLink
from app.core.broker.handouts import AT_LEAST, MESSAGE_STEPS, HandoutTurns
from app.core.broker.journal import BrokerJournal
from app.core.broker.message import Message, expiry_of, handed_on
from app.core.broker.packets import Connect, FilterOptions, WillMessage
from app.core.broker.peers import PeerLimits
from app.core.broker.retained import RetainedMessages
from app.core.broker.rights import ClientCertificate, Door, OpenDoor
from app.core.broker.session import ClientSession, Outgoing
from app.core.broker.subscriptions import Receiver, SubscriptionTable
from app.core.broker.takeovers import TakeOvers
from app.core.broker.unfinished import UnfinishedPackets
from app.core.broker.unsent import UnsentBytes
from app.core.broker.waiting_room import WaitingRoom
from app.core.clock import Clock

SMALL_WILL: Final = 1_024
"""Bytes of a will that a client may always have."""
SMALL_WINDOW: Final = 16
"""Messages of QoS 2 that a client may always leave unreleased."""


class Broker:
    """All state is in memory, and is changed by the connections that it opens and by `tick`.

    `journal` is told of changes; by default, nothing is kept.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        new_client_id: Callable[[], str],
        counters: Counter[str],
        bounds: BrokerBounds,
        journal: BrokerJournal | None = None,
        door: Door | None = None,
    ) -> None:
        """Without a `door`, everybody may come and do everything."""
        self.door: Final = door or OpenDoor()
        self.bounds: Final = bounds
        self.counters: Final = counters
        self.new_client_id: Final = new_client_id
        self.now: Final = clock.monotonic
        self.journal: Final = journal or BrokerJournal()
        self.retained: Final = RetainedMessages(bounds, self.journal)
        self.peers: Final = PeerLimits(bounds, self.now)
        self.take_overs: Final = TakeOvers(self.now)
        self.handout_turns: Final = HandoutTurns(self.now)
        self.subscriptions: Final = SubscriptionTable(self._best)
        self.sessions: Final[dict[str, ClientSession]] = {}
        self.connections: Final[set[BrokerConnection]] = set()
        self.unfinished: Final[UnfinishedPackets[BrokerConnection]] = UnfinishedPackets(bounds.unfinished_bytes)
        self.unsent: Final = UnsentBytes(bounds.unsent_bytes, self.now)
        self.arriving = 0
        """Connections that the broker will open if their handshake succeeds."""
        self.unavailable = False
        """True while no CONNECT is accepted, as what is kept cannot be written."""
        self.out_of_memory = False
        """True while no session and no subscription begins, as the process takes as much memory as it may."""
        self._clock: Final = clock
        self.stopping = False
        """True from `stop` on."""
        self._room = WaitingRoom(bounds.waiting_bytes, self.sessions, self.now)

    @property
    def taken(self) -> int:
        """Connections that count against their bound."""
        return len(self.connections) + self.arriving

    @property
    def has_room(self) -> bool:
        """True if one more session may begin."""
        return len(self.sessions) < self.bounds.sessions and not self.out_of_memory

    @property
    def has_room_for_subscriptions(self) -> bool:
        """True if there may be one more subscription."""
        return len(self.subscriptions) < self.bounds.all_subscriptions and not self.out_of_memory

    @property
    def waiting_bytes(self) -> int:
        """Bytes of what sessions hold."""
        return self._room.taken

    @property
    def epoch(self) -> float:
        """The instant, in seconds since 1970, at which `now` was 0, as this machine believes."""
        return self._clock.wall() - self._clock.monotonic()

    def open(self, link: ClientLink, peer: str = "", certificate: ClientCertificate | None = None) -> BrokerConnection:
        """A connection on which nothing was said yet, of a peer if its peers are limited here."""
        connection = BrokerConnection(self, link, peer, certificate)
        self.peers.arrive(peer)
        self.connections.add(connection)
        return connection

    def connection_of(self, client_id: str) -> BrokerConnection | None:
        """Return the connection of the session of a client id, if it has one."""
        session = self.sessions.get(client_id)
        return session.outlet if session is not None and isinstance(session.outlet, BrokerConnection) else None

    def check_room(self, client_id: str, will: WillMessage | None) -> None:
        """Raise PacketError unless a client may have a session now, with this will."""
        known = self.sessions.get(client_id)
        if known is None and not self.has_room:
            raise PacketError(ReasonCode.QUOTA_EXCEEDED, "the broker has as many sessions, or memory, as it may have")
        if will is not None and will.size > SMALL_WILL:
            others = self._room.will_bytes - (0 if known is None or known.will is None else known.will.size)
            if others + will.size > self.bounds.will_bytes:
                raise PacketError(ReasonCode.QUOTA_EXCEEDED, "the wills of clients take as much memory as they may")

    def check_window(self, session: ClientSession) -> None:
        """Raise PacketError unless a client may send one more message of QoS 2 before it releases others."""
        if len(session.received) >= self.bounds.inflight:
            raise PacketError(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, "more messages than Receive Maximum allows")
        if len(session.received) >= SMALL_WINDOW and self._room.received >= self.bounds.received:
            raise PacketError(ReasonCode.QUOTA_EXCEEDED, "too many messages of QoS 2 that nobody releases")

    def hold_unfinished(self, connection: BrokerConnection, held: int, *, anew: bool) -> None:
        """Count `held` bytes of a packet; where all of these are too many, whoever has begun first has to go."""
        self.unfinished.note(connection, held, anew=anew)
        while (oldest := self.unfinished.surplus) is not None:
            oldest.refuse(PacketError(ReasonCode.QUOTA_EXCEEDED, "too many packets whose rest has not come"))

    def take_over(self, client_id: str) -> None:
        """End the connection of a client id, as it has another one [MQTT-3.1.4-3]."""
        if (connection := self.connection_of(client_id)) is not None:
            self.counters["broker.taken_over"] += 1
            self.take_overs.note(client_id)
            connection.disconnect(ReasonCode.SESSION_TAKEN_OVER)

    def session_now(self, client_id: str) -> ClientSession | None:
        """Return the session of a client id, if it has not ended by now: `tick` may be late for its end and its will.

        A will that is due has to be said before its client comes back, as nobody says it afterwards.
        """
        if (session := self.sessions.get(client_id)) is not None:
            self._do_due(session, self.now())
        return self.sessions.get(client_id)

    def session_for(self, connect: Connect, client_id: str) -> tuple[ClientSession, bool]:
        """The session for a CONNECT, and whether it was there before [MQTT-3.1.2-4 to -6]."""
        old = self.sessions.get(client_id)
        if old is not None and not connect.clean_start:
            return old, True
        if old is not None:
            self.end_session(old)
        return self.begin_session(client_id), False

    def begin_session(self, client_id: str) -> ClientSession:
        """A session that has nothing yet."""
        session = self.sessions[client_id] = ClientSession(
            client_id,
            bounds=self.bounds,
            room=self._room,
            unsent=self.unsent,
            counters=self.counters,
            now=self.now,
            journal=self.journal,
        )
        return session

    def end_session(self, session: ClientSession) -> None:
        """Forget it. Its will is due now at the latest [MQTT-3.1.3-9]."""
        del self.sessions[session.client_id]
        for topic_filter in session.subscriptions:
            self.subscriptions.remove(session.client_id, topic_filter)
        if session.will is not None:
            self.publish_will(session)
        for one in session.end():
            if (member := self.subscriptions.receiver_of(one.share, one.message.topic)) is not None:
                self._hand_over(one.message, member)

    def left(self, session: ClientSession) -> None:
        """Its connection has ended: the will is due, and it ends itself, now or later."""
        if self.stopping:
            return  # sessions count as connected until the next start, which looks after their wills [MQTT-3.1.2-8]
        now = self.now()
        session.detach()
        if session.will is not None:
            session.will_at = now + session.will.properties.number(Property.WILL_DELAY_INTERVAL)
        session.ends_at = now + max(0, session.expiry)
        session.permit = self.door.absent(session.owner, session.permit.reminder)
        self._do_due(session, now)

    def publish(self, message: Message) -> bool:
        """Keep it, if it is to be retained, and give it to all who subscribed; whether there were any."""
        if message.retain and not self.retained.keep(message):
            self.retained.remove(message.topic)  # what it was to replace is the last word no more [MQTT-3.3.1-5]
            self.counters["broker.dropped.retained_full"] += 1
        receivers = list(self.subscriptions.receivers(message))
        for one in receivers:
            self._hand_over(message, one)
        return bool(receivers)

    def give_retained(
        self, session: ClientSession, options: FilterOptions, identifiers: tuple[int, ...]
    ) -> Iterator[int]:
        """Give a session the retained messages of a subscription, as long as more may wait for it.

        Yields after each part of the work the steps that it took; time may pass then.
        """
        yield 1
        if session.full:
            self.counters["broker.dropped.queue_full"] += 1
            return
        paid = 0
        if self.handout_turns.owed and self.retained.is_wide(options.topic_filter, AT_LEAST):
            paid = len(self.retained)  # before it is looked for, which is one step that nobody can interrupt
            yield AT_LEAST + paid
        looked = self.retained.looked
        found = self.retained.matching(options.topic_filter, self.now())
        yield max(0, self.retained.looked - looked - paid)
        for one in found:
            if options.no_local and one.publisher == session.client_id:
                continue  # [MQTT-3.8.3-3]
            if session.full:
                self.counters["broker.dropped.queue_full"] += 1
                return
            if self.retained.get(one.topic) is one:  # else the session was given the one in its place
                session.deliver(Outgoing(one, min(one.qos, options.qos), True, identifiers, kept=True))
            yield MESSAGE_STEPS

    def publish_will(self, session: ClientSession) -> None:
        """Publish the will of a session, and forget it."""
        will, session.will, session.will_at = session.will, None, None
        if will is None:
            return
        session.changed()
        if not session.permit.publishes(will.topic):  # it may not any more
            self.counters["broker.denied.publish"] += 1
            return
        self.publish(
            Message(
                topic=will.topic,
                payload=will.payload,
                qos=will.qos,
                retain=will.retain,
                publisher=session.client_id,
                properties=handed_on(will.properties),
                expires_at=expiry_of(will.properties, self.now()),
            )
        )

    def stop(self) -> None:
        """End all connections. No will is published, and no session ends: the next start does what is due."""
        self.stopping = True
        for connection in [*self.connections]:
            connection.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)

    def recheck(self) -> None:
        """End the connections of clients who may not be here any more, and do what has waited for the rules."""
        for connection in [*self.connections]:
            connection.recheck()
        self._do_all_due()

    def tick(self) -> None:
        """Do what is due: wills, ends of sessions and messages, silent connections. Once a second is often enough."""
        now = self.now()
        for connection in [*self.connections]:
            connection.check(now)
            connection.recheck()
        self._do_all_due()
        self.retained.forget_expired(now)

    def _do_all_due(self) -> None:
        now = self.now()
        for session in [*self.sessions.values()]:
            self._do_due(session, now)

    def _do_due(self, session: ClientSession, now: float) -> None:
        """Publish the will of a session, and end it, if it is time and somebody can tell what its owner may do."""
        if self.stopping or not self.door.knows:
            return
        if session.will_at is not None and session.will_at <= now:
            self.publish_will(session)
        if session.ends_at is not None and session.ends_at <= now:
            self.end_session(session)

    def _hand_over(self, message: Message, receiver: Receiver) -> None:
        session = self.sessions[receiver.client_id]
        session.deliver(
            Outgoing(
                message,
                min(message.qos, receiver.qos),
                message.retain and receiver.as_published,
                receiver.identifiers,
                receiver.share,
            )
        )

    def _best(self, client_ids: list[str], topic: str) -> str | None:
        """Return who could be sent a message at once, else who is connected, else whose turn it is.

        Whoever may not have the topic is passed over: a share of several owners would lose messages to them.
        """
        sessions = [self.sessions[one] for one in client_ids]
        ready = (one for one in sessions if one.ready)
        connected = (one for one in sessions if one.outlet is not None)
        allowed = (one.client_id for one in chain(ready, connected, sessions) if one.permit.may_receive(topic))
        return next(allowed, None)
