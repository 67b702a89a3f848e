"""A broker as Mosquitto 2.0.11 is one: sessions, QoS 1, shared subscriptions, wills, and what it forgets."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import count
from math import floor, inf
from random import Random
from typing import Annotated, Final, Protocol

from pydantic import Field

from app.core.messages import Publication, Receipt, ReceivedMessage
from app.core.topics import matches
from app.mqtt.base import Subscription
from app.mqtt.packets import expiry_interval
from homing_rig.simulation.loop import Lane, SimLoop
from homing_rig.simulation.network import Connection

SESSION_EXPIRY: Final = 3600.0
MOST_QUEUED: Final = 100_000
"""`max_queued_messages` for one session, as deploy/mosquitto.conf has it; what comes then is dropped."""
SHARED: Final = "$share/"

_matches = lru_cache(maxsize=4096)(matches)
"""All nodes have the same few filters, and most topics come again."""


class Client(Protocol):
    """The client's port, which tells what the broker sends to who is connected."""

    def on_connack(self) -> None:
        """The connection is accepted."""

    def on_suback(self) -> None:
        """SUBACK or UNSUBACK."""

    def on_pingresp(self) -> None:
        """PINGRESP."""

    def on_puback(self, number: int, receipt: Receipt) -> None:
        """PUBACK of the publish with this number."""

    def on_publish(self, number: int, message: ReceivedMessage) -> None:
        """A delivery; `number` is 0 for QoS 0."""

    def on_taken_over(self) -> None:
        """DISCONNECT 0x8E."""


@dataclass(slots=True)
class _Kept:
    """A message that waits in a session, or for its PUBACK."""

    message: ReceivedMessage
    expires_at: float


@dataclass(slots=True)
class Guest:
    """One connection as the broker knows it."""

    client_id: str
    client: Client
    connection: Connection
    will: ReceivedMessage | None
    receive_maximum: int


@dataclass(slots=True)
class _Session:
    subscriptions: dict[str, int] = field(default_factory=dict)
    queue: deque[_Kept] = field(default_factory=deque)
    unacknowledged: dict[int, _Kept] = field(default_factory=dict)
    guest: Guest | None = None
    away_since: float = 0.0


@dataclass(slots=True)
class _Route:
    """The sessions that are subscribed to a topic: by themselves, and as members of groups; each with its QoS."""

    plain: list[tuple[_Session, int]] = field(default_factory=list)
    shared: dict[str, list[tuple[_Session, int]]] = field(default_factory=dict)


class ShareTurns(StrEnum):
    """The member of a shared subscription that gets a message."""

    ROUND = "round"
    """The next one."""
    STICKY = "sticky"
    """The same one, for as long as it is there."""
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Quirks:
    """The points in which brokers differ; the defaults are Mosquitto's."""

    absent_members: bool = False
    """A shared subscription gives turns to sessions without a connection as well, if others are connected."""
    unmatched_told: bool = True
    """PUBACK says 0x10 when nobody is subscribed."""
    shares_forgotten: bool = True
    """After a restart sessions are there, but their shared subscriptions are not."""
    receive_maximum: Annotated[int, Field(ge=1, le=65_535)] = 20
    """The messages that the broker takes from a client before it has acknowledged them."""
    turns: ShareTurns = ShareTurns.ROUND


class SimBroker:
    """Its steps are those of its own lane; `chance` draws who of a shared group begins."""

    def __init__(self, loop: SimLoop, quirks: Quirks, chance: Random) -> None:
        self.lane: Final = Lane("broker")
        self.up = True
        self.quirks: Final = quirks
        self.dropped = 0
        self._loop = loop
        self._sessions: dict[str, _Session] = {}
        self._routes: dict[str, _Route] = {}
        """The routes by topic, until a session or a subscription comes or goes."""
        self._turns: dict[str, int] = {}
        self._numbers = count(1)
        self._chance = chance

    def waiting(self) -> dict[str, int]:
        """The number of unacknowledged messages of each session, by client id; only of those that have some."""
        found = {one: len(session.queue) + len(session.unacknowledged) for one, session in self._sessions.items()}
        return {one: count for one, count in found.items() if count}

    def connect(self, guest: Guest, *, clean: bool) -> None:
        """CONNECT. Who had the session before is told that it was taken over."""
        if not self.up:
            return
        self._forget_old_sessions()
        session = self._sessions.get(guest.client_id)
        if session is not None and session.guest is not None:
            other = session.guest
            other.connection.to_client.send(other.client.on_taken_over)
            other.connection.drop()
            self._left(session, told=False)
        if session is None or clean:
            session = self._sessions[guest.client_id] = _Session()
            self._routes.clear()
        session.guest = guest
        guest.connection.to_client.send(guest.client.on_connack)
        again = [
            replace(one, message=replace(one.message, redelivered=True)) for one in session.unacknowledged.values()
        ]
        session.unacknowledged.clear()
        session.queue.extendleft(reversed(again))
        self._send(session)

    def subscribe(self, guest: Guest, subscriptions: tuple[Subscription, ...]) -> None:
        """SUBSCRIBE, with one packet for all."""
        session = self._of(guest)
        if session is not None:
            self._routes.clear()
            for one in subscriptions:
                session.subscriptions[one.topic_filter] = one.qos
            guest.connection.to_client.send(guest.client.on_suback)

    def unsubscribe(self, guest: Guest, filters: tuple[str, ...]) -> None:
        """UNSUBSCRIBE; what is queued still arrives."""
        session = self._of(guest)
        if session is not None:
            self._routes.clear()
            for one in filters:
                session.subscriptions.pop(one, None)
            guest.connection.to_client.send(guest.client.on_suback)

    def ping(self, guest: Guest) -> None:
        """PINGREQ."""
        if self._of(guest) is not None:
            guest.connection.to_client.send(guest.client.on_pingresp)

    def publish(self, guest: Guest, number: int, publication: Publication) -> None:
        """PUBLISH of a client."""
        if self._of(guest) is None:
            return
        message = ReceivedMessage(
            topic=publication.topic,
            payload=publication.payload,
            qos=publication.qos,
            response_topic=publication.response_topic,
            correlation_data=publication.correlation_data,
            user_properties=publication.user_properties,
        )
        matched = self._route(message, self._end_of(publication.message_expiry))
        if number:
            receipt = Receipt.ACKNOWLEDGED if matched or not self.quirks.unmatched_told else Receipt.UNMATCHED
            guest.connection.to_client.send(guest.client.on_puback, number, receipt)

    def acknowledge(self, guest: Guest, number: int) -> None:
        """PUBACK of a client."""
        session = self._of(guest)
        if session is not None:
            session.unacknowledged.pop(number, None)
            self._send(session)

    def disconnect(self, guest: Guest, *, keep_session: bool) -> None:
        """DISCONNECT: there is no will."""
        session = self._of(guest)
        if session is not None:
            self._left(session, told=False)
            if not keep_session:
                del self._sessions[guest.client_id]
                self._routes.clear()

    def lost(self, guest: Guest) -> None:
        """The connection has ended without a DISCONNECT."""
        session = self._of(guest)
        if session is not None:
            self._left(session, told=True)

    def restart(self) -> None:
        """Come back after a stop: what was kept is there, but no connection."""
        self._routes.clear()
        for session in self._sessions.values():
            session.guest = None
            session.away_since = self._loop.time()
            if self.quirks.shares_forgotten:
                session.subscriptions = {
                    one: qos for one, qos in session.subscriptions.items() if not one.startswith(SHARED)
                }
        self.up = True

    def _of(self, guest: Guest) -> _Session | None:
        """The session of a connection that is still its own."""
        session = self._sessions.get(guest.client_id)
        return session if self.up and session is not None and session.guest is guest else None

    def _left(self, session: _Session, *, told: bool) -> None:
        guest, session.guest = session.guest, None
        session.away_since = self._loop.time()
        if guest is not None and guest.will is not None and told:
            self._route(guest.will, float("inf"))

    def _forget_old_sessions(self) -> None:
        before = self._loop.time() - SESSION_EXPIRY
        for client_id, session in tuple(self._sessions.items()):
            if session.guest is None and session.away_since < before:
                del self._sessions[client_id]
                self._routes.clear()

    def _end_of(self, life: timedelta | None) -> float:
        """The instant after which nobody is handed a message: this broker looks at whole seconds, as Mosquitto."""
        return inf if life is None else floor(self._loop.time()) + expiry_interval(life) + 1.0

    def _route_of(self, topic: str) -> _Route:
        found = _Route()
        for session in self._sessions.values():
            plain = -1
            for topic_filter, qos in session.subscriptions.items():
                if not _matches(topic_filter, topic):
                    continue
                if not topic_filter.startswith(SHARED):
                    plain = max(plain, qos)
                else:
                    found.shared.setdefault(topic_filter, []).append((session, qos))
            if plain >= 0:
                found.plain.append((session, plain))
        return found

    def _route(self, message: ReceivedMessage, expires_at: float) -> bool:
        route = self._routes.get(message.topic)
        if route is None:
            route = self._routes[message.topic] = self._route_of(message.topic)
        for session, qos in route.plain:
            self._give(session, message, qos, expires_at)
        for topic_filter, members in route.shared.items():
            there = members if self.quirks.absent_members else [one for one in members if one[0].guest is not None]
            session, qos = self._whose_turn(topic_filter, there or members)
            self._give(session, message, qos, expires_at)
        return bool(route.plain or route.shared)

    def _whose_turn(self, topic_filter: str, among: list[tuple[_Session, int]]) -> tuple[_Session, int]:
        if self.quirks.turns is ShareTurns.STICKY:
            return among[0]
        turn = self._turns.get(topic_filter)
        if turn is None or self.quirks.turns is ShareTurns.RANDOM:
            turn = int(self._chance.random() * len(among))
        else:
            turn += 1
        self._turns[topic_filter] = turn
        return among[turn % len(among)]

    def _give(self, session: _Session, message: ReceivedMessage, most_qos: int, expires_at: float) -> None:
        qos = min(message.qos, most_qos)
        if qos == 0:
            if session.guest is not None:
                client = session.guest.client
                session.guest.connection.to_client.send(client.on_publish, 0, replace(message, qos=0))
        elif len(session.queue) >= MOST_QUEUED:
            self.dropped += 1
        else:
            session.queue.append(_Kept(message, expires_at))
            self._send(session)

    def _send(self, session: _Session) -> None:
        guest = session.guest
        while guest is not None and session.queue and len(session.unacknowledged) < guest.receive_maximum:
            kept = session.queue.popleft()
            if kept.expires_at <= self._loop.time():
                continue
            number = next(self._numbers)
            session.unacknowledged[number] = kept
            guest.connection.to_client.send(guest.client.on_publish, number, kept.message)
