"""The traffic of the broker, for callers who look on: each has a connection of their own for a while."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from app.core.clock import IdFactory
from app.core.errors import BrokerUnavailableError, CapacityError
from app.core.messages import ReceivedMessage
from app.kernel import Kernel
from app.mqtt.base import InboundDelivery, MqttClient, Subscription
from app.profiles.tools.tracer import Seen, Tracer

MOST_LISTENERS: Final = 2
"""The listeners on one node; each is one more receiver of all that it asks for."""
MOST_WAITING: Final = 256
"""Messages that wait to be read for one listener; what comes beyond is counted, and dropped."""
CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class HeardMessage:
    """A message, and when it came: in microseconds since 1970, as this machine believes."""

    message: ReceivedMessage
    at_us: int


class TrafficListener:
    """The messages that came on some topics, at most `most` of them; `changed` is set with each, and at the end."""

    def __init__(self, most: int, now_us: Callable[[], int]) -> None:
        self.changed: Final = asyncio.Event()
        self.heard = 0
        """All messages, also those that were dropped."""
        self.dropped = 0
        """The messages that nobody had read when there were MOST_WAITING already."""
        self.over = False
        """True once its time is up."""
        self._most = most
        self._now_us = now_us
        self._waiting: deque[HeardMessage] = deque()

    @property
    def full(self) -> bool:
        """True once it has heard all that it wants to hear."""
        return self.heard >= self._most

    def take(self) -> HeardMessage | None:
        """Return the next message, if one waits."""
        return self._waiting.popleft() if self._waiting else None

    def hear(self, delivery: InboundDelivery) -> None:
        """Keep a message until it is taken."""
        delivery.acknowledge()
        if self.over or self.full:
            return
        self.heard += 1
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(HeardMessage(delivery.message, self._now_us()))
        else:
            self.dropped += 1
        self.changed.set()

    def end(self) -> None:
        """Hear nothing more."""
        self.over = True
        self.changed.set()


class Traffic:
    """Listens to the broker for who looks on, and says what each profile makes of a message. Nothing is published."""

    def __init__(
        self,
        tracer: Tracer,
        open_listener: Callable[[str], MqttClient] | None,
        new_ulid: IdFactory,
        now_us: Callable[[], int],
    ) -> None:
        self._tracer = tracer
        self._open_listener = open_listener
        self._new_ulid = new_ulid
        self._now_us = now_us
        self._listeners = 0

    def filters(self) -> Sequence[str]:
        """The topic filters that bring all that the profiles send and read."""
        return self._tracer.filters()

    def read(self, heard: HeardMessage) -> list[Seen]:
        """Return what each profile that has the topic makes of a message."""
        return self._tracer.read(heard.message, heard.at_us // 1000)

    def read_now(self, message: ReceivedMessage) -> list[Seen]:
        """Return what each profile would make of a message that came at this moment."""
        return self.read(HeardMessage(message, self._now_us()))

    def check_room(self) -> None:
        """CapacityError while nobody else can listen; BrokerUnavailableError where nobody ever can."""
        self._opener()

    def _opener(self) -> Callable[[str], MqttClient]:
        if self._open_listener is None:
            raise BrokerUnavailableError("this node has no broker that others could listen to")
        if self._listeners >= MOST_LISTENERS:
            raise CapacityError(f"{MOST_LISTENERS} callers listen on this node already, and no more may at once")
        return self._open_listener

    @asynccontextmanager
    async def listen(self, filters: Sequence[str], most: int, seconds: float) -> AsyncIterator[TrafficListener]:
        """Listen inside the block, for so long and to so many messages; the errors of `check_room`."""
        client = self._opener()(f"homing-traffic-{self._new_ulid()[-10:].lower()}")
        listener = TrafficListener(most, self._now_us)
        self._listeners += 1
        try:
            await self._connect(client, filters, listener)
            ending = asyncio.get_running_loop().call_later(seconds, listener.end)
            try:
                yield listener
            finally:
                ending.cancel()
        finally:
            self._listeners -= 1
            await client.stop()

    async def _connect(self, client: MqttClient, filters: Sequence[str], listener: TrafficListener) -> None:
        await client.start([Subscription(one, qos=0, needed=False) for one in filters], listener.hear)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.wait_connected()
        except TimeoutError:
            within = f"{CONNECT_SECONDS:g} s"
            raise BrokerUnavailableError(f"there is no connection with the broker within {within}") from None


def open_traffic(kernel: Kernel) -> Traffic:
    """The traffic of the broker that this node is connected to."""
    adapters = kernel.adapters
    tracer = Tracer(kernel.languages.profiles.values())
    return Traffic(tracer, adapters.open_listener, adapters.new_ulid, kernel.now_us)
