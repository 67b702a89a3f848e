"""The view of operators on a broker: sessions and retained messages, listed and ended by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.core.broker.broker import Broker
from app.core.broker.codes import ReasonCode
from app.core.broker.message import Message
from app.core.broker.rights import OWN_NODE
from app.core.broker.session import ClientSession, Outgoing
from app.core.broker.subscriptions import Subscribed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSessionState:
    """A session at one moment. Instants are seconds since 1970, as this machine believes."""

    client_id: str
    owner: str | None
    """The principal who began it; None if nobody was asked."""
    own: bool
    """True for the session of the node itself."""
    connected: bool
    since: float
    """The instant at which it was connected, or lost its connection, or was read from the disk."""
    expiry: float
    """Seconds that it lives without a connection."""
    kept: bool
    """True if it outlives the node."""
    subscriptions: int
    waiting: int
    in_flight: int
    received: int
    """Messages of QoS 2 from the client that it has not released."""
    will: str | None
    """The topic of its will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSessionContent:
    """The things that a session has at one moment, each of which has a bound."""

    state: ClientSessionState
    subscriptions: Sequence[Subscribed]
    in_flight: Sequence[Outgoing]
    """Messages to the client, in the order in which they were sent first."""
    received: Sequence[int]
    """Packet identifiers of messages of QoS 2 from the client that it has not released."""


def content_of(broker: Broker, session: ClientSession) -> ClientSessionContent:
    """Return what a session has."""
    return ClientSessionContent(
        state=state_of(broker, session),
        subscriptions=[session.subscriptions[name] for name in sorted(session.subscriptions)],
        in_flight=[*session.inflight.values()],
        received=sorted(session.received),
    )


def state_of(broker: Broker, session: ClientSession) -> ClientSessionState:
    """Return what there is to be said about a session."""
    own = session.owner == OWN_NODE.owner
    return ClientSessionState(
        client_id=session.client_id,
        owner=None if own else session.owner or None,
        own=own,
        connected=session.outlet is not None,
        since=broker.epoch + session.since,
        expiry=session.expiry,
        kept=session.durable,
        subscriptions=len(session.subscriptions),
        waiting=len(session.waiting),
        in_flight=len(session.inflight),
        received=len(session.received),
        will=None if session.will is None else session.will.topic,
    )


def end_session(broker: Broker, client_id: str) -> bool:
    """End a session and its connection, and forget what it has; False if there is none. Its will is published."""
    session = broker.sessions.get(client_id)
    if session is None:
        return False
    if (connection := broker.connection_of(client_id)) is not None:
        connection.disconnect(ReasonCode.ADMINISTRATIVE_ACTION)
    if broker.sessions.get(client_id) is session:
        broker.end_session(session)
    return True


def retained(broker: Broker, topic_filter: str | None) -> Iterator[Message]:
    """Yield the retained messages that have not expired; without a filter all, those of `$` topics included."""
    now = broker.now()
    if topic_filter is not None:
        yield from broker.retained.matching(topic_filter, now)
        return
    for one in broker.retained.all():
        if not one.expired(now):
            yield one


def remove_retained(broker: Broker, topic: str) -> bool:
    """Forget the retained message of a topic; False if there is none. Nobody is told, as nobody said anything."""
    found = broker.retained.get(topic)
    broker.retained.remove(topic)
    return found is not None
