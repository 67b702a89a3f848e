"""One connection of a `PahoMqttClient`: what it sends, receives, acknowledges, and how it ends."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog

from app.core.messages import Publication, ReceivedMessage
from app.mqtt import packets
from app.mqtt.base import MessageHandler, Puback, Subscription, Will
from app.mqtt.options import MqttOptions
from app.mqtt.paho_control import SESSION_TAKEN_OVER, PahoControl
from app.mqtt.send_window import SendWindow
from app.mqtt.stream import MqttStream
from app.runtime.telemetry import Fill

SLACK: Final = 64
"""Unacknowledged deliveries beyond the Receive Maximum (QoS 0, or 3.1.1) before reading from the broker stops."""
CLOSE_SECONDS: Final = 1.0
"""The time that a broker has to take what was written before a connection is closed."""

_log = structlog.get_logger(__name__)


class PahoLink:
    """One connection, from CONNECT to its end; publishes and deliveries do not outlive it.

    `ended` is done, with the reason, when the connection is gone; `taken_over` tells that another client with the
    same client id is the cause, `explained` that the broker gave a reason at all. `accepted_at` is when, on the loop's
    clock, CONNACK came. `on_end` is called at that very moment, before anybody who waits for something learns of it.
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
        on_end: Callable[[PahoLink], None] = lambda _link: None,
    ) -> None:
        self.taken_over = self.explained = False
        self.accepted_at: float | None = None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._options = options
        self._tls = tls
        self._handler = handler
        self._on_end = on_end
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._is_v5 = options.version == "5"
        self._keepalive = options.keepalive.total_seconds()
        self._stream = MqttStream(self._on_packet, self.end)
        self._control = PahoControl(options, self._stream.write, self._on_control_end, clean=clean, will=will)
        self._will = will
        self._outgoing = SendWindow(self._stream.write, counters, options.send_window, is_v5=self._is_v5)
        self._unacknowledged = 0
        self.deliveries = 0
        """The number of messages that came over this connection."""
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
            self._outgoing.limit(limits.receive_maximum, limits.max_packet_size)
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
        if self.ended.done():  # since the last answer of the broker
            raise ConnectionError(self.ended.result())
        if self._will is not None:
            _ = self._outgoing.send(Publication(self._will.topic, self._will.back))

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """UNSUBSCRIBE and wait for UNSUBACK; raises ConnectionError when the connection breaks."""
        if subscriptions:
            await self._control.unsubscribe(subscriptions)

    async def disconnect(self, *, keep_session: bool) -> None:
        """DISCONNECT, and wait a moment for the broker to close the connection."""
        if not self.ended.done():
            self._outgoing.refuse_unsent("stopped")
            self._control.disconnect(keep_session=keep_session)
            self._stream.close()
            await asyncio.wait([self.ended], timeout=CLOSE_SECONDS)
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
        if self._stream.choked:
            raise self._outgoing.no_room()
        return self._outgoing.publish(publication)

    def fills(self) -> dict[str, Fill]:
        """See `MqttClient.fills`."""
        return {
            "publishes": Fill(self._outgoing.waiting, self._options.send_window),
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
        if not self.ended.done():
            self._end(reason)
            self._stream.abort()

    def cut(self, reason: str) -> None:
        """End it without DISCONNECT; what was published before still leaves."""
        if not self.ended.done():
            self._end(reason)
            self._stream.close()
            self._loop.call_later(CLOSE_SECONDS, self._stream.abort)

    def _end(self, reason: str) -> None:
        self.ended.set_result(reason)
        self._on_end(self)
        if self._ticker is not None:
            self._ticker.cancel()
        self._control.fail(reason)
        self._outgoing.fail(reason)

    async def _subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        try:
            refused = await self._control.subscribe(subscriptions)
        except ConnectionRefusedError:
            self._counters["subscribe_refused"] += 1
            raise
        if refused:
            self._counters["subscribe_refused"] += 1
            _log.warning("mqtt_subscription_missing", refused=", ".join(refused))

    # Receiving. Nothing here may raise: asyncio would close the connection.

    def _on_packet(self, first_byte: int, body: bytes) -> None:
        if self.ended.done():
            return
        kind = first_byte & 0xF0
        try:
            if kind == packets.PUBLISH:
                self._on_publish(first_byte, body)
            elif kind == packets.PUBACK:
                self._outgoing.confirm(*packets.decode_puback(body))
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


def _texts(properties: Sequence[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode(errors="replace"), value.decode(errors="replace")) for name, value in properties)
