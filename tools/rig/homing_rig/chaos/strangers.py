"""Clients at the broker that are none of ours, and take what is not theirs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_rig.chaos.options import ChaosError
from homing_rig.rights import PASSWORD

PERSISTENCE: Final = 0.2
"""Seconds until a stranger who was thrown out is there again."""
CONNECT_SECONDS: Final = 30.0


def login(user: str, client_id: str, port: int) -> MqttOptions:
    """The options with which somebody with a password of the rig connects."""
    return MqttOptions(client_id=client_id, host="127.0.0.1", port=port, username=user, password=PASSWORD)


class Stranger:
    """Takes and acknowledges what it is given, and comes back at once whenever it is thrown out.

    With the client id of a node it has that node's session, and all that this is subscribed to.
    """

    def __init__(self, options: MqttOptions, filters: Sequence[str] = ()) -> None:
        self.swallowed: list[str] = []
        """The topics of what it took."""
        self._options = options
        self._subscriptions = [Subscription(one) for one in filters]
        self._client = PahoMqttClient(options, Counter())
        self._staying: asyncio.Task[None] | None = None

    async def come(self) -> None:
        """Connect; ChaosError when the broker does not let it in."""
        await self._client.start(self._subscriptions, self._swallow)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._client.wait_connected()
        except TimeoutError:
            raise ChaosError(f"the stranger {self._options.client_id} was not let in") from None
        self._staying = asyncio.create_task(self._stay(), name=f"stranger {self._options.client_id}")

    async def go(self) -> None:
        """Disconnect and end the session."""
        if self._staying is not None:
            self._staying.cancel()
            await asyncio.wait([self._staying])
        await self._client.stop()

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(PERSISTENCE)
            if not self._client.connected:
                # A client of its own for each connection: one alone waits for longer each time.
                await self._client.stop(keep_session=True)
                self._client = PahoMqttClient(self._options, Counter())
                await self._client.start(self._subscriptions, self._swallow)

    def _swallow(self, delivery: InboundDelivery) -> None:
        self.swallowed.append(delivery.message.topic)
        delivery.acknowledge()


@asynccontextmanager
async def stranger(options: MqttOptions, filters: Sequence[str] = ()) -> AsyncIterator[Stranger]:
    """Present inside the block."""
    one = Stranger(options, filters)
    try:
        await one.come()
        yield one
    finally:
        await one.go()
