"""One connection of a `PahoMqttClient`: what it sends, receives, acknowledges, and how it ends."""

from __future__ import annotations

import asyncio
import math
import ssl
import struct
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import structlog

from app.core.errors import (
    BrokerUnavailableError,
    PacketTooLargeError,
    PublishRefusedError,
    PublishUnconfirmedError,
    UnpublishableError,
)
from app.core.messages import Publication, Receipt, ReceivedMessage
from app.mqtt import packets
from app.mqtt.base import MessageHandler, Puback, Subscription, Will
from app.mqtt.options import MqttOptions
from app.mqtt.paho_control import FIRST_FREE_PACKET_ID, SESSION_TAKEN_OVER, PahoControl
from app.mqtt.stream import MqttStream
from app.runtime.telemetry import Fill

SLACK: Final = 64
"""Unacknowledged deliveries beyond the Receive Maximum (QoS 0, or 3.1.1) before reading from the broker stops."""

_NO_MATCHING_SUBSCRIBERS: Final = 0x10
_FAILURE: Final = 0x80
_NEVER_TAKEN: Final = {0x90: "the topic name is invalid", 0x99: "the payload format is invalid"}
"""Reason codes of PUBACK (MQTT 5, section 3.4.2.1) that say the same however often the message is sent."""
_MAX_PACKET_ID: Final = 0xFFFF
_MAX_EXPIRY_SECONDS: Final = 2**32 - 1
_NO_PROPERTIES: Final = packets.publish_properties(None, None, None)

_log = structlog.get_logger(__name__)


class _Unsent(NamedTuple):
    """A publish that waits for room in the broker's window; `expires_at` is on the loop's clock."""

    publication: Publication
    expires_at: float


class PahoLink:
    """One connection, from CONNECT to its end; publishes and deliveries do not outlive it.

    `ended` is done, with the reason, when the connection is gone; `taken_over` tells that another client with the
    same client id is the cause, `explained` that the broker gave a reason at all. `accepted_at` is when, on the loop's
    clock, CONNACK came.
    """

    def __init__(
        self,
        options: MqttOptions,
        tls: ssl.SSLContext | None,
        handler: MessageHandler,
        counters: Counter[str],
        *,
        clean: bool = False,
        will: Will | None = None,
    ) -> None:
        self.taken_over = self.explained = False
        self.accepted_at: float | None = None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._options = options
        self._tls = tls
        self._handler = handler
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._is_v5 = options.version == "5"
        self._keepalive = options.keepalive.total_seconds()
        self._window = options.send_window
        self._broker_max_packet_size = packets.MAX_PACKET_SIZE
        self._stream = MqttStream(self._on_packet, self.end)
        self._control = PahoControl(options, self._stream.write, self._on_control_end, clean=clean, will=will)
        self._will = will
        self._unconfirmed: dict[int, Puback] = {}
        self._unsent: OrderedDict[Puback, _Unsent] = OrderedDict()
        self._last_packet_id = FIRST_FREE_PACKET_ID - 1
        self._unacknowledged = 0
        self.deliveries = 0
        """How many messages came over this connection."""
        self._deliveries_at_tick = 0
        self._opening: asyncio.Timeout | None = None
        self._reading_paused = False
        self._resting = False
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_due = 0.0
        self._pings = 0
        """PINGREQs without a PINGRESP."""
        self._pong: asyncio.Future[None] = self._loop.create_future()
        """Done when each of them has one."""

    async def open(
        self,
        subscriptions: Sequence[Subscription],
        *,
        unsubscribe: bool = False,
        still_ours: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """CONNECT, then SUBSCRIBE or UNSUBSCRIBE; raises OSError or TimeoutError when that fails.

        `still_ours` is awaited in between. Whoever adopts the session after that takes this connection over, so that
        a SUBSCRIBE cannot come after the end of the session and make a new one that nobody looks for.
        """
        async with asyncio.timeout(self._options.connect_timeout.total_seconds()) as self._opening:
            await self._loop.create_connection(
                lambda: self._stream, self._options.host, self._options.port, ssl=self._tls
            )
            limits = await self._control.connect()
            self.accepted_at = self._loop.time()
            self._keepalive = limits.keepalive
            self._window = min(self._window, limits.receive_maximum)
            self._broker_max_packet_size = limits.max_packet_size
            if self._keepalive:
                self._tick_due = self._loop.time()
                self._tick()
            if still_ours is not None:
                await still_ours()
            if subscriptions and unsubscribe:
                await self._control.unsubscribe(subscriptions)
            elif subscriptions:
                await self._subscribe(subscriptions)
        self._opening = None
        if self._will is not None:
            self._send(Publication(self._will.topic, self._will.back, qos=0), Puback())

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """UNSUBSCRIBE and wait for UNSUBACK; raises ConnectionError when the connection breaks."""
        if subscriptions:
            await self._control.unsubscribe(subscriptions)

    async def disconnect(self, *, keep_session: bool) -> None:
        """DISCONNECT, and wait a moment for the broker to close the connection."""
        if not self.ended.done():
            self._refuse_unsent("stopped")
            self._control.disconnect(keep_session=keep_session)
            self._stream.close()
            await asyncio.wait([self.ended], timeout=1.0)
        self.end("stopped")

    async def quiet(self, idle: float) -> None:
        """Wait until nothing came for `idle` seconds, all is acknowledged, and the broker has nothing more.

        A silence may be that of the network, with messages under way. So the broker is asked for a sign of life after
        it: what it sent before that has come by then. ConnectionError when the link ends, or no sign comes.
        """
        seen = -1
        while seen != self.deliveries or self._unacknowledged:
            seen = self.deliveries
            await asyncio.wait([self.ended], timeout=idle)
            if self.ended.done():
                raise ConnectionError(self.ended.result())
            if seen == self.deliveries and not self._unacknowledged:
                await self._sign_of_life()

    async def _sign_of_life(self) -> None:
        self._ping()
        timeout = self._options.connect_timeout.total_seconds()
        ends: list[asyncio.Future[Any]] = [self._pong, self.ended]
        await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self.ended.done():
            raise ConnectionError(self.ended.result())
        if not self._pong.done():
            raise ConnectionError(f"no PINGRESP within {timeout:g} s")

    def _ping(self) -> None:
        if self._pong.done():
            self._pong = self._loop.create_future()
        self._pings += 1
        self._stream.write(packets.PINGREQ)

    def _on_pingresp(self) -> None:
        self._pings -= 1
        if self._pings <= 0 and not self._pong.done():
            self._pong.set_result(None)

    def publish(self, publication: Publication) -> Puback:
        """See `MqttClient.publish`."""
        waiting = len(self._unconfirmed) + len(self._unsent)
        if self._stream.choked or waiting >= self._options.send_window:
            raise BrokerUnavailableError(f"{waiting} messages wait for the MQTT broker already")
        future = Puback()
        if publication.qos and (self._unsent or len(self._unconfirmed) >= self._window):
            self._packet(publication, FIRST_FREE_PACKET_ID)  # what is wrong with it is said now
            expiry = math.inf if publication.message_expiry is None else publication.message_expiry.total_seconds()
            self._unsent[future] = _Unsent(publication, self._loop.time() + expiry)
            future.add_done_callback(self._withdraw)
        else:
            self._send(publication, future)
        return future

    def fills(self) -> dict[str, Fill]:
        """See `MqttClient.fills`."""
        return {
            "publishes": Fill(len(self._unconfirmed) + len(self._unsent), self._options.send_window),
            "deliveries": Fill(self._unacknowledged, self._options.receive_maximum + SLACK),
        }

    def acknowledge(self, packet_id: int) -> None:
        """One delivery less to wait for; PUBACK when it was QoS 1."""
        self._unacknowledged -= 1
        if packet_id and not self.ended.done():
            self._stream.write(packets.puback(packet_id))
        if self._reading_paused and self._unacknowledged <= self._options.receive_maximum:
            self._reading_paused = False
            self._read_on()

    def rest(self, *, on: bool) -> None:
        """See `MqttClient.rest`."""
        if on and not self._resting:
            self._stream.pause()
        was_resting, self._resting = self._resting, on
        if was_resting and not on:
            self._read_on()

    def _read_on(self) -> None:
        if not (self._reading_paused or self._resting):
            self._stream.resume()

    def end(self, reason: str) -> None:
        """Close at once and tell everybody who waits; only the first call counts."""
        if self.ended.done():
            return
        self.ended.set_result(reason)
        if self._ticker is not None:
            self._ticker.cancel()
        self._stream.abort()
        self._control.fail(reason)
        for future in self._unconfirmed.values():
            self._counters["publish_unconfirmed"] += 1
            _fail(future, PublishUnconfirmedError(reason))
        self._unconfirmed.clear()
        self._refuse_unsent(reason)

    async def _subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        try:
            refused = await self._control.subscribe(subscriptions)
        except ConnectionRefusedError:
            self._counters["subscribe_refused"] += 1
            raise
        if refused:
            self._counters["subscribe_refused"] += 1
            _log.warning("mqtt_subscription_missing", refused=", ".join(refused))

    def _send(self, publication: Publication, future: Puback) -> None:
        packet_id = self._free_packet_id() if publication.qos else 0
        self._stream.write(self._packet(publication, packet_id))
        future.left = True
        if packet_id:
            self._unconfirmed[packet_id] = future
        else:
            future.set_result(Receipt.UNACKNOWLEDGED)

    def _send_waiting(self) -> None:
        """Send what waited for the broker's window, but never after its expiry: its caller was told otherwise."""
        while self._unsent and len(self._unconfirmed) < self._window:
            future, (publication, expires_at) = self._unsent.popitem(last=False)
            if future.done():
                continue
            if self._loop.time() < expires_at:
                self._send(publication, future)
            else:
                self._counters["publish_expired"] += 1
                _fail(future, BrokerUnavailableError("its time was over before the broker took it"))

    def _withdraw(self, future: asyncio.Future[Receipt]) -> None:
        """Give back the room of a publish that was cancelled while it waited; any other is no longer in the queue."""
        if isinstance(future, Puback) and self._unsent.pop(future, None) is not None:
            self._counters["publish_withdrawn"] += 1

    def _refuse_unsent(self, reason: str) -> None:
        while self._unsent:
            _fail(self._unsent.popitem(last=False)[0], BrokerUnavailableError(reason))

    def _packet(self, publication: Publication, packet_id: int) -> bytes:
        packet = self._encode(publication, packet_id)
        if len(packet) > self._broker_max_packet_size:
            raise PacketTooLargeError(
                "payload", f"makes a packet of {len(packet)} bytes; the broker takes {self._broker_max_packet_size}"
            )
        return packet

    def _encode(self, publication: Publication, packet_id: int) -> bytes:
        topic = publication.topic
        if publication.qos not in (0, 1):
            raise UnpublishableError("qos", f"{publication.qos}: allowed are 0 and 1")
        if not topic or "+" in topic or "#" in topic or "\0" in topic:
            raise UnpublishableError("topic", "is empty, or has a wildcard or NUL in it: allowed is a topic name")
        try:
            properties = _publish_properties(publication) if self._is_v5 else None
            return packets.publish(topic.encode(), publication.payload, publication.qos, packet_id, properties)
        except (UnicodeEncodeError, struct.error) as error:
            raise UnpublishableError("publication", f"MQTT cannot carry it: {error}") from error

    def _free_packet_id(self) -> int:
        # Never endless: the window is smaller than the number of packet ids.
        while True:
            self._last_packet_id += 1
            if self._last_packet_id > _MAX_PACKET_ID:
                self._last_packet_id = FIRST_FREE_PACKET_ID
            if self._last_packet_id not in self._unconfirmed:
                return self._last_packet_id

    # Receiving. Nothing here may raise: asyncio would close the connection.

    def _on_packet(self, first_byte: int, body: bytes) -> None:
        if self.ended.done():
            return
        kind = first_byte & 0xF0
        try:
            if kind == packets.PUBLISH:
                self._on_publish(first_byte, body)
            elif kind == packets.PUBACK:
                self._on_puback(*packets.decode_puback(body))
            else:
                if kind == packets.PINGRESP:
                    self._on_pingresp()
                self._control.feed(packets.packet(first_byte, body))
        except packets.MalformedPacketError as error:
            self.end(f"the broker sent a malformed packet: {error}")
        except Exception as error:  # noqa: BLE001
            _log.exception("mqtt_link_error", client=self._options.shown_client_id)
            self.end(f"error while reading: {error!r}")

    def _on_publish(self, first_byte: int, body: bytes) -> None:
        packet = packets.decode_publish(first_byte, body, with_properties=self._is_v5)
        self._count_delivery()
        try:
            message = ReceivedMessage(
                topic=packet.topic.decode(),
                payload=packet.payload,
                qos=1 if packet.packet_id else 0,
                retain=bool(first_byte & 0x01),
                redelivered=bool(first_byte & 0x08),
                response_topic=None if packet.response_topic is None else packet.response_topic.decode(),
                correlation_data=packet.correlation_data,
                user_properties=_texts(packet.user_properties) if packet.user_properties else (),
            )
        except UnicodeDecodeError:
            self._drop("undecodable_topic", packet.packet_id)
            return
        if len(body) > self._options.max_packet_size:  # only a 3.1.1 broker does not know our limit
            self._drop("packet_too_large", packet.packet_id)
            return
        delivery = _PahoDelivery(message, self, packet.packet_id)
        try:
            self._handler(delivery)
        except Exception:  # noqa: BLE001
            # Acknowledged, or the same message would come back for ever and use up the Receive Maximum.
            self._counters["handler_error"] += 1
            _log.exception("mqtt_handler_error", client=self._options.shown_client_id)
            delivery.acknowledge()

    def _count_delivery(self) -> None:
        self.deliveries += 1
        self._unacknowledged += 1
        if self._unacknowledged > self._options.receive_maximum + SLACK and not self._reading_paused:
            self._reading_paused = True
            self._counters["reading_paused"] += 1
            self._stream.pause()

    def _drop(self, reason: str, packet_id: int) -> None:
        self._counters[reason] += 1
        if self._counters[reason] == 1:
            _log.warning("mqtt_message_dropped", client=self._options.shown_client_id, reason=reason)
        self.acknowledge(packet_id)

    def _on_puback(self, packet_id: int, reason_code: int) -> None:
        future = self._unconfirmed.pop(packet_id, None)
        if self._unsent:
            self._send_waiting()
        if future is None or future.done():
            return
        if reason_code < _FAILURE:
            unmatched = reason_code == _NO_MATCHING_SUBSCRIBERS
            future.set_result(Receipt.UNMATCHED if unmatched else Receipt.ACKNOWLEDGED)
        else:
            self._counters["publish_refused"] += 1
            _fail(future, _refusal(reason_code))

    def _on_control_end(self, reason: str, reason_code: int) -> None:
        self.explained, self.taken_over = True, reason_code == SESSION_TAKEN_OVER
        self.end(reason)

    def _tick(self) -> None:
        """Keepalive. Not paho's: that one takes the broker for dead when we stop reading on purpose."""
        now = self._loop.time()
        was_frozen = now - self._tick_due > 1.0
        is_paused = self._reading_paused or self._resting
        if is_paused or was_frozen:
            self._stream.last_received = now
        is_busy = is_paused or self.deliveries != self._deliveries_at_tick
        if is_busy and self._opening is not None and not self._opening.expired():
            # A broker may send the backlog of the session before SUBACK: slow, but not stuck.
            self._opening.reschedule(now + self._options.connect_timeout.total_seconds())
        self._deliveries_at_tick = self.deliveries
        quiet = now - self._stream.last_received
        if quiet >= self._keepalive:
            self.end(f"the broker has been silent for {quiet:.1f} s")
            return
        if max(quiet, now - self._stream.last_sent) >= self._keepalive / 2:
            self._ping()
        interval = min(1.0, self._keepalive / 4)
        self._tick_due = now + interval
        self._ticker = self._loop.call_later(interval, self._tick)


class _PahoDelivery:
    __slots__ = ("_link", "_packet_id", "message")

    def __init__(self, message: ReceivedMessage, link: PahoLink, packet_id: int) -> None:
        self.message = message
        self._link: PahoLink | None = link
        self._packet_id = packet_id

    def acknowledge(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.acknowledge(self._packet_id)


def _publish_properties(publication: Publication) -> bytes:
    expiry, response_topic = publication.message_expiry, publication.response_topic
    user = publication.user_properties
    if expiry is None and response_topic is None and publication.correlation_data is None and not user:
        return _NO_PROPERTIES
    return packets.publish_properties(
        None if expiry is None else min(max(1, math.ceil(expiry.total_seconds())), _MAX_EXPIRY_SECONDS),
        None if response_topic is None else response_topic.encode(),
        publication.correlation_data,
        [(name.encode(), value.encode()) for name, value in user] if user else (),
    )


def _refusal(reason_code: int) -> Exception:
    reason = f"the broker refused the message: 0x{reason_code:02X}"
    never = _NEVER_TAKEN.get(reason_code)
    return PublishRefusedError(reason) if never is None else UnpublishableError("publication", f"{reason}, {never}")


def _texts(properties: Sequence[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode(errors="replace"), value.decode(errors="replace")) for name, value in properties)


def _fail(future: Puback, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Marked as seen: a caller that went away must not make asyncio write a traceback for each message.
        future.exception()
