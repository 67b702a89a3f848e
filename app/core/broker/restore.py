"""A broker as its rows tell, after its process has ended in whatever way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from app.core.broker.codes import Property
from app.core.broker.journal import BrokerChanges
from app.core.broker.message import Message, expiry_of
from app.core.broker.rows import BrokerRows, read_rows
from app.core.broker.session import Outgoing

if TYPE_CHECKING:
    from app.core.broker.broker import Broker


def restore(broker: Broker, rows: Mapping[bytes, bytes]) -> Mapping[bytes, str]:
    """Put all of it into a broker that is empty; keys of rows that are damaged, and why they are left out.

    Connections of before count as lost now: their wills are due, and sessions end that were to end with them. All that
    changes by that is in the journal, and so are rows that lead nowhere, which go.
    """
    found, astray = read_rows(rows), BrokerChanges()
    for number, message in found.messages.items():
        broker.journal.restore(number, _message(broker, message))
    _sessions(broker, found)
    _parts(broker, found, astray)
    _references(broker, found, astray)
    _retained(broker, found, astray)
    broker.journal.take()  # nothing of this is news
    broker.journal.put_back(astray)
    broker.journal.forget_unused()
    for client_id, head in found.heads.items():
        if head.connected:
            broker.left(broker.sessions[client_id])
    broker.tick()
    return found.damaged


def _message(broker: Broker, message: Message) -> Message:
    """The message with its expiry by our clock. One that has stepped back makes it last for as long as it may once."""
    at = message.expires_at
    if at is None:
        return message
    most = expiry_of(message.properties, broker.now())  # None in rows of versions that did not keep it
    ours = at - broker.epoch
    return replace(message, expires_at=ours if most is None else min(ours, most))


def _sessions(broker: Broker, found: BrokerRows) -> None:
    for client_id, head in found.heads.items():
        session = broker.begin_session(client_id)
        session.live_for(head.expiry)
        session.durable = head.durable
        session.owner = head.owner
        session.permit = broker.door.absent(head.owner, head.reminder)
        session.will = head.will
        # A clock that has stepped back would put it into the future, and its end and its will a day late with it.
        session.since = min(head.since - broker.epoch, broker.now())
        session.changed()
        if not head.connected:
            session.ends_at = session.since + head.expiry
            if head.will is not None and head.will_at is not None:
                delay = head.will.properties.number(Property.WILL_DELAY_INTERVAL)
                session.will_at = min(head.will_at - broker.epoch, session.since + delay)


def _parts(broker: Broker, found: BrokerRows, astray: BrokerChanges) -> None:
    for (client_id, name), subscribed in found.subscriptions.items():
        if (session := broker.sessions.get(client_id)) is None:
            astray.subscriptions.add((client_id, name))
        else:
            session.subscribe(subscribed)
            broker.subscriptions.put(client_id, subscribed)
    for client_id, packet_id in found.received:
        if (session := broker.sessions.get(client_id)) is None:
            astray.received.add((client_id, packet_id))
        else:
            session.receive(packet_id)


def _references(broker: Broker, found: BrokerRows, astray: BrokerChanges) -> None:
    shares: dict[str, str] = {}
    identifiers: dict[tuple[int, ...], tuple[int, ...]] = {}  # one of each, as there was before
    for client_id, place in sorted(found.references, key=lambda one: one[1]):
        one, session = found.references[client_id, place], broker.sessions.get(client_id)
        message = broker.journal.messages.get(one.number)
        broker.journal.begin_after(one.number, place)
        if session is not None and message is not None:
            same = identifiers.setdefault(one.identifiers, one.identifiers)
            outgoing = Outgoing(message, one.qos, one.retain, same, shares.setdefault(one.share, one.share))
            outgoing.released, outgoing.packet_id = one.released, one.packet_id
            if session.restore(place, outgoing):
                continue
        astray.references.add((client_id, place))


def _retained(broker: Broker, found: BrokerRows, astray: BrokerChanges) -> None:
    for topic, number in found.retained.items():
        message = broker.journal.messages.get(number)
        broker.journal.begin_after(number, 0)
        if message is not None and broker.retained.keep(message):
            continue
        astray.retained.add(topic)
        if message is not None:  # the bounds of before were wider
            broker.counters["broker.dropped.retained_full"] += 1
