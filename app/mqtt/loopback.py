"""An MQTT broker inside the process, and clients of it: the same port, no network."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Final

import structlog

from app.core.errors import BrokerUnavailableError, InvalidInputError, PublishUnconfirmedError, UnpublishableError
from app.core.messages import Publication, Receipt, ReceivedMessage
from app.core.topics import matches, parse_share, validate_filter, validate_topic
from app.mqtt.base import MessageHandler, Puback, Subscription, Will
from app.runtime.telemetry import Fill

MAX_QUEUED: Final = 100_000
"""Messages that wait for one client; more are dropped and counted as queue_full."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _LoopbackSession:
    subscriptions: dict[str, int] = field(default_factory=dict)
    queue: deque[ReceivedMessage] = field(default_factory=deque)
    unacknowledged: dict[int, ReceivedMessage] = field(default_factory=dict)
    receive: Callable[[LoopbackDelivery], None] | None = None


class LoopbackBroker:
    """Routes messages between `LoopbackMqttClient`s of one event loop: sessions, QoS 1, shared subscriptions, retained.

    Of a shared subscription the connected members take turns; messages wait in a session when no member is
    connected. Message expiry is not looked at.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._sessions: dict[str, _LoopbackSession] = {}
        self._clients: dict[str, LoopbackMqttClient] = {}
        self._retained: dict[str, ReceivedMessage] = {}
        self._turns: Counter[str] = Counter()
        self._delivery_ids = count(1)

    def disconnect(self, client_id: str) -> None:
        """Cut the client's connection; it stays away until `restore`."""
        self._clients[client_id].connection_lost()

    def restore(self, client_id: str) -> None:
        """Let a client that was cut off connect again."""
        self._clients[client_id].connect()

    def retain(self, message: ReceivedMessage) -> None:
        """Keep a message for those who subscribe to its topic later; an empty payload removes it."""
        if message.payload:
            self._retained[message.topic] = replace(message, retain=True)
        else:
            self._retained.pop(message.topic, None)

    def publish(self, message: ReceivedMessage) -> bool:
        """Give a message to all who subscribed, as it is: also one with the retain flag set. Whether there were any."""
        matched = False
        shared: dict[str, list[tuple[_LoopbackSession, int]]] = {}
        for session in self._sessions.values():
            plain_qos = []
            for topic_filter, qos in session.subscriptions.items():
                group, inner = parse_share(topic_filter)
                if not matches(inner, message.topic):
                    continue
                if group is None:
                    plain_qos.append(qos)
                else:
                    shared.setdefault(topic_filter, []).append((session, qos))
            if plain_qos:
                matched = True
                self._enqueue(session, message, max(plain_qos))
        for topic_filter, members in shared.items():
            connected = [member for member in members if member[0].receive is not None] or members
            self._turns[topic_filter] += 1
            session, qos = connected[self._turns[topic_filter] % len(connected)]
            self._enqueue(session, message, qos)
        return matched or bool(shared)

    def attach(self, client: LoopbackMqttClient, receive: Callable[[LoopbackDelivery], None]) -> None:
        """Connect a client to its session, new or kept; what it did not acknowledge comes again."""
        other = self._clients.get(client.client_id)
        if other is not None and other is not client:
            other.take_over()
        self._clients[client.client_id] = client
        session = self._sessions.setdefault(client.client_id, _LoopbackSession())
        session.receive = receive
        again = [replace(message, redelivered=True) for message in session.unacknowledged.values()]
        session.queue.extendleft(reversed(again))
        session.unacknowledged.clear()
        self._send_soon(session)

    def detach(self, client_id: str, *, keep_session: bool) -> None:
        """Disconnect a client."""
        session = self._sessions.get(client_id)
        if session is not None:
            session.receive = None
            if not keep_session:
                del self._sessions[client_id]

    def subscribe(self, client_id: str, subscription: Subscription) -> None:
        """Add a subscription, or replace its QoS; retained messages follow unless it is shared."""
        session = self._sessions[client_id]
        session.subscriptions[validate_filter(subscription.topic_filter)] = subscription.qos
        for message in self._retained.values():
            if not subscription.topic_filter.startswith("$share/") and matches(
                subscription.topic_filter, message.topic
            ):
                self._enqueue(session, message, subscription.qos)

    def unsubscribe(self, client_id: str, topic_filter: str) -> None:
        """Remove a subscription; what is queued still arrives."""
        self._sessions[client_id].subscriptions.pop(topic_filter, None)

    def acknowledge(self, client_id: str, delivery_id: int) -> None:
        """Forget a delivery."""
        session = self._sessions.get(client_id)
        if session is not None:
            session.unacknowledged.pop(delivery_id, None)

    def has_session(self, client_id: str) -> bool:
        """True if there is a session that subscribes to something."""
        session = self._sessions.get(client_id)
        return session is not None and bool(session.subscriptions)

    def holds_for(self, client_id: str) -> int:
        """The number of messages of a session that are not acknowledged."""
        session = self._sessions.get(client_id)
        return 0 if session is None else len(session.queue) + len(session.unacknowledged)

    def _enqueue(self, session: _LoopbackSession, message: ReceivedMessage, max_qos: int) -> None:
        qos = min(message.qos, max_qos)
        if session.receive is None and qos == 0:
            return
        if len(session.queue) >= MAX_QUEUED:
            self.counters["queue_full"] += 1
            return
        session.queue.append(replace(message, qos=qos))
        self._send_soon(session)

    def _send_soon(self, session: _LoopbackSession) -> None:
        if session.queue and session.receive is not None:
            asyncio.get_running_loop().call_soon(self._send, session)

    def _send(self, session: _LoopbackSession) -> None:
        while session.queue and session.receive is not None:
            message = session.queue.popleft()
            delivery_id = next(self._delivery_ids)
            if message.qos:
                session.unacknowledged[delivery_id] = message
            session.receive(LoopbackDelivery(self, message, delivery_id))


class LoopbackDelivery:
    """A message from a `LoopbackBroker`."""

    __slots__ = ("_broker", "_delivery_id", "client_id", "message")

    def __init__(self, broker: LoopbackBroker, message: ReceivedMessage, delivery_id: int) -> None:
        self.message = message
        self.client_id = ""
        self._broker = broker
        self._delivery_id = delivery_id

    def acknowledge(self) -> None:
        self._broker.acknowledge(self.client_id, self._delivery_id)


class LoopbackMqttClient:
    """An `MqttClient` of a `LoopbackBroker`."""

    def __init__(self, broker: LoopbackBroker, client_id: str, counters: Counter[str]) -> None:
        self._broker = broker
        self._client_id = client_id
        self._counters = counters
        self._subscriptions: Sequence[Subscription] = ()
        self._handler: MessageHandler | None = None
        self._will: Will | None = None
        self._connected = asyncio.Event()
        self._taken_over = asyncio.Event()
        self._unconfirmed: set[Puback] = set()
        self._connections = 0
        self._deliveries = 0
        self._resting = False
        self._kept_back: deque[LoopbackDelivery] = deque()

    @property
    def client_id(self) -> str:
        return self._client_id

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    @property
    def connections(self) -> int:
        return self._connections

    @property
    def deliveries(self) -> int:
        """The number of messages that the broker has delivered so far."""
        return self._deliveries

    def fills(self) -> dict[str, Fill]:
        return {"deliveries": Fill(self._broker.holds_for(self.client_id), MAX_QUEUED)}

    async def start(
        self, subscriptions: Sequence[Subscription], handler: MessageHandler, will: Will | None = None
    ) -> None:
        for subscription in subscriptions:
            if subscription.qos not in (0, 1):
                raise InvalidInputError(
                    "qos", f"{subscription.qos} of {subscription.topic_filter}: allowed are 0 and 1"
                )
        self._subscriptions = tuple(subscriptions)
        self._handler = handler
        self._will = will
        asyncio.get_running_loop().call_soon(self.connect)

    async def wait_connected(self) -> None:
        await self._connected.wait()

    async def taken_over(self) -> None:
        await self._taken_over.wait()

    def rest(self, *, on: bool) -> None:
        self._resting = on
        while self._kept_back and not self._resting:
            self._hand_out(self._kept_back.popleft())

    def cut(self) -> None:
        self.connection_lost()
        asyncio.get_running_loop().call_soon(self.connect)

    def publish(self, publication: Publication) -> Puback:
        if not self.connected:
            raise BrokerUnavailableError("not connected to the MQTT broker")
        message = ReceivedMessage(
            topic=_publishable(publication.topic),
            payload=publication.payload,
            qos=publication.qos,
            response_topic=publication.response_topic,
            correlation_data=publication.correlation_data,
            user_properties=publication.user_properties,
        )
        loop = asyncio.get_running_loop()
        future = Puback(left=True)
        matched = self._broker.publish(message)
        if publication.qos:
            self._unconfirmed.add(future)
            loop.call_soon(self._confirm, future, Receipt.ACKNOWLEDGED if matched else Receipt.UNMATCHED)
        else:
            future.set_result(Receipt.UNACKNOWLEDGED)
        return future

    async def unsubscribe(self) -> None:
        if not self.connected:
            raise BrokerUnavailableError("not connected to the MQTT broker")
        for subscription in self._subscriptions:
            self._broker.unsubscribe(self.client_id, subscription.topic_filter)
        self._subscriptions = ()
        await asyncio.sleep(0)

    async def restart_as(self, client_id: str, subscriptions: Sequence[Subscription], will: Will | None = None) -> None:
        self.connection_lost(tell=False)
        self._taken_over.clear()
        self._client_id = client_id
        self._subscriptions = tuple(subscriptions)
        self._will = will
        asyncio.get_running_loop().call_soon(self.connect)

    async def quiet(self, idle: timedelta) -> None:
        # No network keeps anything back: the session has all that is still to come, so no silence has to prove it.
        while self.connected:
            if not self._broker.holds_for(self.client_id):
                return
            await asyncio.sleep(idle.total_seconds())
        raise BrokerUnavailableError("the broker may hold more: there is no connection")

    async def stop(self, *, keep_session: bool = False) -> None:
        self._handler = None
        self.connection_lost(keep_session=keep_session, tell=False)

    def connect(self) -> None:
        """Connect to the broker; nothing happens before `start` or after `stop`."""
        if self._handler is None or self.connected or self._taken_over.is_set():
            return
        self._broker.attach(self, self._receive)
        for subscription in self._subscriptions:
            self._broker.subscribe(self.client_id, subscription)
        self._counters["connected"] += 1
        self._connections += 1
        self._connected.set()
        if self._will is not None:
            self._broker.publish(ReceivedMessage(self._will.topic, self._will.back, qos=1))

    def take_over(self) -> None:
        """Lose the session to another client."""
        self._taken_over.set()
        self.connection_lost()

    def connection_lost(self, *, keep_session: bool = True, tell: bool = True) -> None:
        """Lose the connection, as when the broker closes it."""
        if not self.connected:
            return
        self._connected.clear()
        self._resting = False
        self._kept_back.clear()  # none of it is acknowledged
        self._broker.detach(self.client_id, keep_session=keep_session)
        if self._will is not None and tell:
            self._broker.publish(ReceivedMessage(self._will.topic, self._will.payload, qos=1))
        for future in self._unconfirmed:
            if not future.done():
                future.set_exception(PublishUnconfirmedError("connection lost"))
                future.exception()  # marked as seen: nobody has to wait for it
        self._unconfirmed.clear()

    def _confirm(self, future: Puback, receipt: Receipt) -> None:
        self._unconfirmed.discard(future)
        if not future.done():
            future.set_result(receipt)

    def _receive(self, delivery: LoopbackDelivery) -> None:
        delivery.client_id = self.client_id
        if self._resting:
            self._kept_back.append(delivery)
        else:
            self._hand_out(delivery)

    def _hand_out(self, delivery: LoopbackDelivery) -> None:
        self._deliveries += 1
        if self._handler is None:
            return
        try:
            self._handler(delivery)
        except Exception:  # noqa: BLE001
            self._counters["handler_error"] += 1
            _log.exception("mqtt_handler_error", client=self.client_id)
            delivery.acknowledge()


class LoopbackSessionDrain:
    """A `SessionDrain` of a `LoopbackBroker`."""

    def __init__(self, broker: LoopbackBroker, client_id: str, counters: Counter[str]) -> None:
        self._broker = broker
        self._client = LoopbackMqttClient(broker, client_id, counters)

    async def drain(self, topic_filters: Sequence[str], handler: MessageHandler, idle: timedelta) -> int:
        client = self._client
        await client.start((), handler)
        client.connect()
        for topic_filter in topic_filters:
            self._broker.unsubscribe(client.client_id, topic_filter)
        await client.quiet(idle)
        await client.stop()
        return client.deliveries


def _publishable(topic: str) -> str:
    try:
        return validate_topic(topic)
    except InvalidInputError as error:
        raise UnpublishableError(error.field, error.reason) from None
