"""Clients of the simulated broker behind the ports of the product: those of nodes and those of devices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Final

from app.core.errors import BrokerUnavailableError, InvalidInputError, UnpublishableError
from app.core.messages import Publication
from app.core.topics import validate_topic
from app.mqtt.base import InboundDelivery, MessageHandler, Puback, Subscription, Will
from app.runtime.telemetry import Fill
from homing_rig.simulation.broker import SimBroker
from homing_rig.simulation.loop import SimLoop
from homing_rig.simulation.mqtt_link import CONNECT_SECONDS, SimLink
from homing_rig.simulation.network import Link

STABLE: Final = 5.0
TAKEN_OVER_SECONDS: Final = 60.0
LONGEST_BACKOFF: Final = 5.0


class SimMqttClient:
    """An `MqttClient` that connects again by itself, as the product's does over paho."""

    def __init__(
        self,
        loop: SimLoop,
        broker: SimBroker,
        way: Link,
        client_id: str,
        counters: Counter[str],
        chance: Random,
        *,
        still_ours: Callable[[str], Awaitable[None]] | None = None,
        receive_maximum: int = 256,
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._way = way
        self._client_id = client_id
        self._counters = counters
        self._chance = chance
        self._still_ours = still_ours
        self._receive_maximum = receive_maximum
        self._subscriptions: Sequence[Subscription] = ()
        self._handler: MessageHandler = ignore
        self._will: Will | None = None
        self._unsubscribed = False
        self._link: SimLink | None = None
        self._connected = asyncio.Event()
        self._taken_over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connections = 0

    @property
    def client_id(self) -> str:
        return self._client_id

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def connections(self) -> int:
        return self._connections

    def fills(self) -> dict[str, Fill]:
        return {}

    async def start(
        self, subscriptions: Sequence[Subscription], handler: MessageHandler, will: Will | None = None
    ) -> None:
        for one in subscriptions:
            if one.qos not in (0, 1):
                raise InvalidInputError("qos", f"{one.qos} of {one.topic_filter}: allowed are 0 and 1")
        self._subscriptions, self._handler, self._will = tuple(subscriptions), handler, will
        self._task = asyncio.create_task(self._keep_connected(), name="mqtt")

    async def wait_connected(self) -> None:
        await self._connected.wait()

    async def taken_over(self) -> None:
        await self._taken_over.wait()

    def rest(self, *, on: bool) -> None:
        if self._link is not None:
            self._link.rest(on=on)

    def cut(self) -> None:
        link = self._link
        if link is not None:
            self._forget_link()
            link.end("this side broke it")

    def publish(self, publication: Publication) -> Puback:
        try:
            validate_topic(publication.topic)
        except InvalidInputError as error:
            raise UnpublishableError(error.field, error.reason) from None
        if self._link is None:
            raise BrokerUnavailableError("not connected to the MQTT broker")
        return self._link.publish(publication)

    async def restart_as(self, client_id: str, subscriptions: Sequence[Subscription], will: Will | None = None) -> None:
        await self.stop(keep_session=True)
        self._unsubscribed = False
        self._taken_over.clear()
        self._client_id = client_id
        await self.start(subscriptions, self._handler, will)

    async def quiet(self, idle: timedelta) -> None:
        if self._link is None:
            raise BrokerUnavailableError("not connected to the MQTT broker")
        try:
            await self._link.quiet(idle.total_seconds())
        except (ConnectionError, TimeoutError) as error:
            raise BrokerUnavailableError(f"the broker may hold more: {error}") from error

    async def unsubscribe(self) -> None:
        self._unsubscribed = True
        if self._link is None:
            raise BrokerUnavailableError("not connected to the MQTT broker")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._link.unsubscribe(self._subscriptions)
        except (ConnectionError, TimeoutError) as error:
            raise BrokerUnavailableError(f"no UNSUBACK: {error}") from error

    async def stop(self, *, keep_session: bool = False) -> None:
        link = self._link
        if link is not None:
            self._forget_link()
            await link.disconnect(keep_session=keep_session)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _keep_connected(self) -> None:
        attempt = 0
        while True:
            await self._confirm()
            link = SimLink(
                self._loop,
                self._broker,
                self._way,
                self._client_id,
                self._handler,
                self._counters,
                receive_maximum=self._receive_maximum,
                will=self._will,
            )
            lived = await self._serve(link)
            attempt = 0 if lived is not None and lived >= STABLE else attempt + 1
            await asyncio.sleep(self._backoff(attempt, taken_over=link.taken_over))

    async def _confirm(self) -> None:
        if self._still_ours is not None:
            await self._still_ours(self._client_id)

    async def _serve(self, link: SimLink) -> float | None:
        try:
            await link.open(self._subscriptions, unsubscribe=self._unsubscribed, still_ours=self._confirm)
            self._link = link
            self._taken_over.clear()
            self._connected.set()
            self._connections += 1
            self._counters["connected"] += 1
            await asyncio.wait([link.ended])
            if self._link is link:
                self._counters["connection_lost"] += 1
        except (OSError, TimeoutError):
            self._counters["connection_failed"] += 1
        finally:
            cut = link.ended.done()
            self._forget_link()
            link.end("the connection is given up")
        return None if link.accepted_at is None or not cut else self._loop.time() - link.accepted_at

    def _backoff(self, attempt: int, *, taken_over: bool) -> float:
        if taken_over:
            self._counters["session_taken_over"] += 1
            self._taken_over.set()
            return TAKEN_OVER_SECONDS * (0.5 + self._chance.random() / 2)
        return self._chance.random() * min(LONGEST_BACKOFF, 0.2 * 2.0 ** min(attempt, 10))

    def _forget_link(self) -> None:
        self._link = None
        self._connected.clear()


class SimSessionDrain:
    """A `SessionDrain` of the simulated broker."""

    def __init__(self, loop: SimLoop, broker: SimBroker, way: Link, client_id: str, counters: Counter[str]) -> None:
        self._open: Callable[[MessageHandler], SimLink] = lambda handler: SimLink(
            loop, broker, way, client_id, handler, counters, receive_maximum=256
        )

    async def drain(self, topic_filters: Sequence[str], handler: MessageHandler, idle: timedelta) -> int:
        link = self._open(handler)
        try:
            await link.open([Subscription(one) for one in topic_filters], unsubscribe=True)
            await link.quiet(idle.total_seconds())
            await link.disconnect(keep_session=False)
        except (OSError, TimeoutError) as error:
            raise BrokerUnavailableError(f"the session was not drained: {error}") from None
        finally:
            link.end("drained")
        return link.deliveries


class SimRollCall:
    """A `RollCall` of the simulated broker."""

    def __init__(self, loop: SimLoop, broker: SimBroker, way: Link, client_id: str, counters: Counter[str]) -> None:
        self._open: Callable[[MessageHandler], SimLink] = lambda handler: SimLink(
            loop, broker, way, client_id, handler, counters, receive_maximum=256
        )

    async def ask(self, topic: str, question: bytes, is_answer: Callable[[bytes], bool], patience: timedelta) -> bool:
        answered = asyncio.Event()

        def hear(delivery: InboundDelivery) -> None:
            if is_answer(delivery.message.payload):
                answered.set()
            delivery.acknowledge()

        link = self._open(hear)
        try:
            await link.open([Subscription(topic, qos=0)])
            _written = link.publish(Publication(topic, question, qos=0))
            with suppress(TimeoutError):
                await asyncio.wait_for(answered.wait(), patience.total_seconds())
            if link.ended.done():
                raise ConnectionError(link.ended.result())
            await link.disconnect(keep_session=False)
        except (OSError, TimeoutError) as error:
            raise BrokerUnavailableError(f"nobody could be asked: {error}") from None
        finally:
            link.end("asked")
        return answered.is_set()


def ignore(_delivery: object) -> None:
    """Handle a message that nobody waits for."""
