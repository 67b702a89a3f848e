"""The MQTT ports: one durable session with a broker, as the rest of Homing sees it, and the end of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from app.core.messages import Publication, Receipt, ReceivedMessage
from app.runtime.telemetry import Fill


class InboundDelivery(Protocol):
    """A received message together with the duty to acknowledge it."""

    @property
    def message(self) -> ReceivedMessage:
        """The message."""

    def acknowledge(self) -> None:
        """Send PUBACK, once. A no-op for QoS 0, and when its connection is gone: then the broker redelivers."""


MessageHandler = Callable[[InboundDelivery], None]
"""Called on the event loop for every delivery. Must not block; an exception is counted and logged, no more."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic filter (shared ones as `$share/{group}/{filter}`) with the QoS to ask for.

    Without one that is not `needed` the connection goes on: the refusal is counted and logged.
    """

    topic_filter: str
    qos: int = 1
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the broker publishes, with QoS 1 and at once, when it loses a connection (MQTT 5, 3.1.2.5).

    `back` is what the client itself publishes there on each connection, with QoS 1 as well.
    """

    topic: str
    payload: bytes
    back: bytes


class Puback(asyncio.Future[Receipt]):
    """The broker's answer to a publish; `left` is true once it was written, and false while it waits its turn here."""

    __slots__ = ("left",)

    def __init__(self, *, left: bool = False) -> None:
        super().__init__()
        self.left = left


class MqttClient(Protocol):
    """One client of one broker. It reconnects by itself with jitter and subscribes anew on every connection.

    A publish belongs to one connection: what was not acknowledged when the connection broke is reported as
    unconfirmed and never sent again, as the device may have it already, or its caller may have given up.
    """

    @property
    def client_id(self) -> str:
        """The MQTT client identifier of the session."""

    @property
    def connected(self) -> bool:
        """True while CONNACK and all SUBACKs of the current connection are in."""

    @property
    def connections(self) -> int:
        """The number of connections so far: a new number tells that the broker may be another one."""

    def fills(self) -> dict[str, Fill]:
        """The numbers of publishes that wait for PUBACK and of deliveries that wait for their acknowledgement."""

    async def start(
        self, subscriptions: Sequence[Subscription], handler: MessageHandler, will: Will | None = None
    ) -> None:
        """Begin to connect in the background and return at once; `wait_connected` tells when it worked."""

    async def wait_connected(self) -> None:
        """Return when `connected` is true."""

    async def taken_over(self) -> None:
        """Return when another client has taken the session over: `restart_as` begins another one.

        MQTT 5 tells it (reason code 0x8E); else connections that end soon after they began are taken for a sign of it.
        Without `restart_as` this client connects again only after a minute, as it would kick the other one out.
        """

    def rest(self, *, on: bool) -> None:
        """Read nothing from this connection, or go on reading: the broker keeps what comes meanwhile.

        A new connection reads.
        """

    def cut(self) -> None:
        """Break the connection without DISCONNECT, so that the broker keeps the session and publishes the will.

        What was published before still leaves, though its future fails with PublishUnconfirmedError. It connects again
        once the session is known to be still its own. Nothing happens without a connection.
        """

    def publish(self, publication: Publication) -> Puback:
        """Send and return a future that is done at PUBACK (QoS 1) or when written (QoS 0).

        What exceeds the broker's Receive Maximum waits its turn, in a bounded queue and not beyond its message expiry.
        Raises BrokerUnavailableError (nothing was sent) when not connected or when that queue is full, and
        UnpublishableError when MQTT or this broker cannot carry it. The future fails with PublishUnconfirmedError when
        the connection breaks before PUBACK, with BrokerUnavailableError when it was never sent, and with
        PublishRefusedError when the broker answers 0x80 or above (0x90 and 0x99 are UnpublishableError). 0x10, nobody
        subscribed, is no failure of the publish, but a receipt of its own.

        Cancelling the future takes a message that still waits its turn out of the queue, and it is never sent. Of one
        that was written only the future ends.
        """

    async def restart_as(self, client_id: str, subscriptions: Sequence[Subscription], will: Will | None = None) -> None:
        """Leave the session where it is and begin another one under this client id."""

    async def quiet(self, idle: timedelta) -> None:
        """Return when nothing has come for `idle`, all deliveries are acknowledged and the broker has nothing more.

        A silence alone proves nothing: the network may be slow. BrokerUnavailableError when the connection is gone, or
        the broker gives no sign of life: it may hold more then.
        """

    async def unsubscribe(self) -> None:
        """UNSUBSCRIBE from all filters and wait for UNSUBACK; deliveries that came before it still count."""

    async def stop(self, *, keep_session: bool = False) -> None:
        """DISCONNECT and end the background work; the broker drops the session unless `keep_session`."""


class RollCall(Protocol):
    """A question to whoever listens on a topic, over a connection that ends with it."""

    async def ask(self, topic: str, question: bytes, is_answer: Callable[[bytes], bool], patience: timedelta) -> bool:
        """Publish the question; whether something came back on the topic within `patience` that is an answer.

        Raises BrokerUnavailableError when there is no way to ask.
        """


class SessionDrain(Protocol):
    """The session of another client, to be emptied and ended: that of a node that died."""

    async def drain(self, topic_filters: Sequence[str], handler: MessageHandler, idle: timedelta) -> int:
        """Empty a session that another process left, and end it. Returns the number of deliveries.

        Connects, UNSUBSCRIBEs first so that the broker adds nothing, hands out what the session holds until it is quiet
        for `idle`, and disconnects with session expiry 0. BrokerUnavailableError when the connection fails or breaks:
        what was not acknowledged is still there, and `drain` may be tried again.
        """
