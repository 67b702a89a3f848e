"""One connection of a client to the simulated broker: what it has sent, and what it was given."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from itertools import count
from typing import Final

from app.core.errors import BrokerUnavailableError, HomingError, PublishUnconfirmedError
from app.core.messages import Publication, Receipt, ReceivedMessage
from app.mqtt.base import MessageHandler, Puback, Subscription, Will
from homing_rig.simulation.broker import Guest, SimBroker
from homing_rig.simulation.loop import SimLoop
from homing_rig.simulation.network import Connection, Link, Side

KEEPALIVE: Final = 5.0
CONNECT_SECONDS: Final = 5.0
SEND_WINDOW: Final = 1000


class SimLink:
    """One connection of a client, from CONNECT to its end."""

    def __init__(
        self,
        loop: SimLoop,
        broker: SimBroker,
        way: Link,
        client_id: str,
        handler: MessageHandler,
        counters: Counter[str],
        *,
        receive_maximum: int,
        will: Will | None = None,
    ) -> None:
        self.ended: asyncio.Future[str] = loop.create_future()
        self.taken_over = False
        self.accepted_at: float | None = None
        self.deliveries = 0
        self.unacknowledged = 0
        self._loop = loop
        self._broker = broker
        self._way = way
        self._client_id = client_id
        self._handler = handler
        self._counters = counters
        self._receive_maximum = receive_maximum
        self._will = will
        self._window = broker.quirks.receive_maximum
        self._answer: asyncio.Future[None] | None = None
        self._unconfirmed: dict[int, Puback] = {}
        self._unsent: dict[Puback, tuple[Publication, float]] = {}
        self._numbers = count(1)
        self._resting = False
        self._kept_back: deque[tuple[int, ReceivedMessage]] = deque()
        self.connection: Connection | None = None
        self._guest: Guest | None = None

    async def open(
        self,
        subscriptions: Sequence[Subscription],
        *,
        unsubscribe: bool = False,
        still_ours: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """CONNECT, then SUBSCRIBE or UNSUBSCRIBE; OSError or TimeoutError when that fails."""
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.sleep(2 * self._way.delay())
            if not (self._broker.up and self._way.up):
                raise ConnectionRefusedError("connection refused")
            guest = self._arrive()
            await self._asked(self._broker.connect, guest, clean=False)
            self.accepted_at = self._loop.time()
            if still_ours is not None:
                await still_ours()
            if subscriptions and unsubscribe:
                await self._asked(self._broker.unsubscribe, guest, tuple(one.topic_filter for one in subscriptions))
            elif subscriptions:
                await self._asked(self._broker.subscribe, guest, tuple(subscriptions))
        if self._will is not None:
            self._send(Publication(self._will.topic, self._will.back), Puback())

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """UNSUBSCRIBE and wait for UNSUBACK."""
        if self._guest is not None and subscriptions:
            filters = tuple(one.topic_filter for one in subscriptions)
            await self._asked(self._broker.unsubscribe, self._guest, filters)

    async def quiet(self, idle: float) -> None:
        """As the product's: a silence counts when the broker gives a sign of life after it."""
        seen = -1
        while seen != self.deliveries or self.unacknowledged:
            seen = self.deliveries
            await asyncio.wait([self.ended], timeout=idle)
            if self.ended.done() or self._guest is None:
                raise ConnectionError("the connection has ended")
            if seen == self.deliveries and not self.unacknowledged:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._asked(self._broker.ping, self._guest)

    async def disconnect(self, *, keep_session: bool) -> None:
        """DISCONNECT, which arrives unless the connection breaks first."""
        if not self.ended.done() and self.connection is not None and self._guest is not None:
            self.connection.to_server.send(_disconnect, self._broker, self._guest, keep_session)
            await asyncio.sleep(2 * self._way.delay())
        self.end("stopped")

    def publish(self, publication: Publication) -> Puback:
        """As `MqttClient.publish`."""
        if self.ended.done():
            raise BrokerUnavailableError(f"not connected to the MQTT broker: {self.ended.result()}")
        if len(self._unconfirmed) + len(self._unsent) >= SEND_WINDOW:
            raise BrokerUnavailableError("too many messages wait for the MQTT broker already")
        future = Puback()
        if publication.qos and (self._unsent or len(self._unconfirmed) >= self._window):
            expiry = publication.message_expiry
            until = float("inf") if expiry is None else self._loop.time() + expiry.total_seconds()
            self._unsent[future] = publication, until
            future.add_done_callback(self._withdraw)
        else:
            self._send(publication, future)
        return future

    def rest(self, *, on: bool) -> None:
        """Read no more, or go on reading."""
        self._resting = on
        while self._kept_back and not self._resting:
            self._hand_out(*self._kept_back.popleft())

    def acknowledge(self, number: int) -> None:
        """PUBACK."""
        self.unacknowledged -= 1
        if number and self.connection is not None and self._guest is not None:
            self.connection.to_server.send(self._broker.acknowledge, self._guest, number)

    def end(self, reason: str) -> None:
        """Close, and tell everybody who waits; only the first call counts."""
        if self.connection is not None:
            self.connection.close()
        if self.ended.done():
            return
        self.ended.set_result(reason)
        self._kept_back.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError(reason))
        for future in self._unconfirmed.values():
            _fail(future, PublishUnconfirmedError(reason))
        self._unconfirmed.clear()
        while self._unsent:
            future = next(iter(self._unsent))
            del self._unsent[future]
            _fail(future, BrokerUnavailableError(reason))

    # what the broker calls, in the context of this client

    def on_connack(self) -> None:
        self._answered()

    def on_suback(self) -> None:
        self._answered()

    def on_pingresp(self) -> None:
        self._answered()

    def on_puback(self, number: int, receipt: Receipt) -> None:
        future = self._unconfirmed.pop(number, None)
        self._send_waiting()
        if future is not None and not future.done():
            future.set_result(receipt)

    def on_publish(self, number: int, message: ReceivedMessage) -> None:
        if self.ended.done():
            return
        if self._resting:
            self._kept_back.append((number, message))
        else:
            self._hand_out(number, message)

    def on_taken_over(self) -> None:
        self.taken_over = True
        self.end("the session was taken over")

    def _arrive(self) -> Guest:
        guest: Guest

        def gone() -> None:
            self._broker.lost(guest)

        here = Side(copy_context(), lambda: self.end("the broker closed the connection"), KEEPALIVE)
        there = Side(self._broker.lane.context, gone, 1.5 * KEEPALIVE)
        self.connection = Connection(self._loop, self._way, here, there)
        will = None if self._will is None else ReceivedMessage(self._will.topic, self._will.payload, qos=1)
        self._guest = guest = Guest(self._client_id, self, self.connection, will, self._receive_maximum)
        return guest

    async def _asked(self, what: Callable[..., None], guest: Guest, *arguments: object, **named: bool) -> None:
        self._answer = answer = self._loop.create_future()
        if self.connection is None or self.ended.done():
            raise ConnectionResetError("the connection has ended")
        self.connection.to_server.send(lambda: what(guest, *arguments, **named))
        await answer

    def _answered(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def _send(self, publication: Publication, future: Puback) -> None:
        number = next(self._numbers) if publication.qos else 0
        if self.connection is not None and self._guest is not None:
            self.connection.to_server.send(self._broker.publish, self._guest, number, publication)
        future.left = True
        if number:
            self._unconfirmed[number] = future
        else:
            future.set_result(Receipt.UNACKNOWLEDGED)

    def _send_waiting(self) -> None:
        while self._unsent and len(self._unconfirmed) < self._window:
            future = next(iter(self._unsent))
            publication, until = self._unsent.pop(future)
            if future.done():
                continue
            if self._loop.time() < until:
                self._send(publication, future)
            else:
                _fail(future, BrokerUnavailableError("its time was over before the broker took it"))

    def _withdraw(self, future: asyncio.Future[Receipt]) -> None:
        if isinstance(future, Puback):
            self._unsent.pop(future, None)

    def _hand_out(self, number: int, message: ReceivedMessage) -> None:
        self.deliveries += 1
        self.unacknowledged += 1
        delivery = _SimDelivery(message, self, number)
        try:
            self._handler(delivery)
        except Exception:  # noqa: BLE001 - as the product's own client does
            self._counters["handler_error"] += 1
            delivery.acknowledge()


def _disconnect(broker: SimBroker, guest: Guest, keep_session: bool) -> None:  # noqa: FBT001
    broker.disconnect(guest, keep_session=keep_session)


def _fail(future: Puback, error: HomingError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()


class _SimDelivery:
    __slots__ = ("_link", "_number", "message")

    def __init__(self, message: ReceivedMessage, link: SimLink, number: int) -> None:
        self.message = message
        self._link: SimLink | None = link
        self._number = number

    def acknowledge(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.acknowledge(self._number)
