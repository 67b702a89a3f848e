"""The MQTT port: one durable session with a broker, as the rest of Homing sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from app.core.messages import Publication, ReceivedMessage
from app.observability import Fill


class Delivery(Protocol):
    """A received message together with the duty to acknowledge it."""

    @property
    def message(self) -> ReceivedMessage:
        """The message."""

    def acknowledge(self) -> None:
        """Send PUBACK, once. A no-op for QoS 0, and when its connection is gone: then the broker redelivers."""


MessageHandler = Callable[[Delivery], None]
"""Called on the event loop for every delivery. Must not block; an exception is counted and logged, no more."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic filter (shared ones as `$share/{group}/{filter}`) with the QoS to ask for."""

    topic_filter: str
    qos: int = 1


class MqttClient(Protocol):
    """One client of one broker. It reconnects by itself with jitter and subscribes anew on every connection.

    A publish belongs to one connection: what was not acknowledged when the connection broke is reported as
    unconfirmed and never sent again (failure modes F5 and F58).
    """

    @property
    def client_id(self) -> str:
        """The MQTT client identifier of the session."""

    @property
    def connected(self) -> bool:
        """True while CONNACK and all SUBACKs of the current connection are in."""

    def queues(self) -> dict[str, Fill]:
        """How many publishes wait for PUBACK, and how many deliveries for their acknowledgement."""

    async def start(self, subscriptions: Sequence[Subscription], handler: MessageHandler) -> None:
        """Begin to connect in the background and return at once; `wait_connected` tells when it worked."""

    async def wait_connected(self) -> None:
        """Return when `connected` is true."""

    def publish(self, publication: Publication) -> asyncio.Future[None]:
        """Send and return a future that is done at PUBACK (QoS 1) or when written (QoS 0).

        What exceeds the broker's Receive Maximum waits its turn, in a bounded queue and not beyond its message expiry.
        Raises BrokerUnavailableError (nothing was sent) when not connected or when that queue is full. The future fails
        with PublishUnconfirmedError when the connection breaks before PUBACK, and with BrokerUnavailableError when it
        was never sent, or when the broker refuses it with 0x80 or above (0x10, nobody subscribed, is success).
        """

    async def restart_as(self, client_id: str) -> None:
        """Leave the session where it is and begin another one under this client id, with the same subscriptions."""

    async def quiet(self, idle: timedelta) -> None:
        """Return when nothing has come for `idle` and all deliveries are acknowledged, or there is no connection."""

    async def drain(self, topic_filters: Sequence[str], handler: MessageHandler, idle: timedelta) -> int:
        """Empty a session that another process left, and end it; instead of `start`. Returns the number of deliveries.

        Connects, UNSUBSCRIBEs first so that the broker adds nothing, hands out what the session holds until it is quiet
        for `idle`, and disconnects with session expiry 0. BrokerUnavailableError when the connection fails or breaks:
        what was not acknowledged is still there, and `drain` may be tried again.
        """

    async def unsubscribe(self) -> None:
        """UNSUBSCRIBE from all filters and wait for UNSUBACK; deliveries that came before it still count."""

    async def stop(self, *, keep_session: bool = False) -> None:
        """DISCONNECT and end the background work; the broker drops the session unless `keep_session`."""
