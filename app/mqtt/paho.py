"""The MQTT port on paho, on the event loop and without a thread.

This module keeps a client connected; `paho_link.py` is one connection, `paho_control.py` the part of it that paho
speaks; `paho_drain.py` ends sessions. A connection never continues another one: a paho client that reconnects by itself
would send publishes that were reported as failed long ago, and all of them at once, whatever the broker's Receive
Maximum.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

import structlog

from app.core.errors import BrokerUnavailableError, InvalidInputError
from app.core.messages import Publication
from app.mqtt.base import MessageHandler, Puback, Subscription, Will
from app.mqtt.options import MqttOptions
from app.mqtt.paho_drain import drop_session_of_3_1_1, ignore, text_of
from app.mqtt.paho_link import PahoLink
from app.mqtt.renewable_tls import RenewableTls
from app.runtime.telemetry import Fill

LONGEST_BACKOFF: Final = timedelta(seconds=5)
TAKEN_OVER_BACKOFF: Final = timedelta(seconds=60)
"""Another client took over the session: whoever of the two is wrong, reconnecting at once would kick it out. A node
does not wait for that, it begins another session."""
FLAPS: Final = 3
"""Connections in a row that were accepted and soon closed: a sign of the same, as 3.1.1 and Mosquitto 2.0.11 give no
reason when another client takes over."""
STABLE: Final = timedelta(seconds=10)
"""A connection that lived that long was a good one: the next outage begins with a quick retry."""


_log = structlog.get_logger(__name__)


class PahoMqttClient:
    """An `MqttClient` over TCP or TLS. `counters` gets one count per event that somebody may have to look at.

    Counted: connected, connection_lost, connection_failed, session_taken_over, subscribe_refused, handler_error,
    undecodable_topic, packet_too_large, publish_refused, publish_expired, publish_withdrawn (cancelled
    before it left), publish_unconfirmed, reading_paused.
    """

    def __init__(
        self,
        options: MqttOptions,
        counters: Counter[str],
        rng: random.Random | None = None,
        still_ours: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`still_ours(client id)` is awaited before each CONNECT, as a session that was adopted must stay closed.

        It is awaited again before SUBSCRIBE, as the process may have been frozen in between.
        """
        self._options = options
        self._counters = counters
        self._rng = rng or random.Random()
        self._still_ours = still_ours
        self._tls = RenewableTls(options)
        self._subscriptions: Sequence[Subscription] = ()
        self._handler: MessageHandler = ignore
        self._will: Will | None = None
        self._unsubscribed = False
        self._link: PahoLink | None = None
        self._connected = asyncio.Event()
        self._taken_over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connections = 0

    @property
    def client_id(self) -> str:
        return self._options.client_id

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def connections(self) -> int:
        return self._connections

    def fills(self) -> dict[str, Fill]:
        return {} if self._link is None else self._link.fills()

    async def start(
        self, subscriptions: Sequence[Subscription], handler: MessageHandler, will: Will | None = None
    ) -> None:
        if self._task is not None:
            raise RuntimeError("this MQTT client was started already")
        for subscription in subscriptions:
            if subscription.qos not in (0, 1):
                raise InvalidInputError(
                    "qos", f"{subscription.qos} of {subscription.topic_filter}: allowed are 0 and 1"
                )
        self._subscriptions = tuple(subscriptions)
        self._handler = handler
        self._will = will
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
            link.cut("this side broke it")

    def publish(self, publication: Publication) -> Puback:
        return self._current_link().publish(publication)

    async def unsubscribe(self) -> None:
        # Remembered, so that a new connection to the same session does not bring the subscriptions back.
        self._unsubscribed = True
        link = self._current_link()
        try:
            async with asyncio.timeout(self._options.connect_timeout.total_seconds()):
                await link.unsubscribe(self._subscriptions)
        except (ConnectionError, TimeoutError) as error:
            raise BrokerUnavailableError(f"no UNSUBACK: {text_of(error)}") from error

    async def restart_as(self, client_id: str, subscriptions: Sequence[Subscription], will: Will | None = None) -> None:
        await self.stop(keep_session=True)
        self._task = None
        self._unsubscribed = False
        self._taken_over.clear()
        self._options = replace(self._options, client_id=client_id)
        await self.start(subscriptions, self._handler, will)

    async def quiet(self, idle: timedelta) -> None:
        try:
            await self._current_link().quiet(idle.total_seconds())
        except ConnectionError as error:
            raise BrokerUnavailableError(f"the broker may hold more: {error}") from error

    async def stop(self, *, keep_session: bool = False) -> None:
        link = self._link
        if link is not None:
            self._forget_link()
            await link.disconnect(keep_session=keep_session)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if link is not None and not keep_session and self._options.version == "3.1.1":
            await drop_session_of_3_1_1(self._options, self._tls.context(), self._counters)

    async def _keep_connected(self) -> None:
        attempt = flaps = 0
        while True:
            await self._confirm()
            link = PahoLink(
                self._options, self._tls.context(), self._handler, self._counters, will=self._will, on_end=self._lost
            )
            cut_after = await self._serve(link)
            stable = cut_after is not None and cut_after >= STABLE.total_seconds()
            attempt = 0 if stable else attempt + 1
            flaps = 0 if stable or cut_after is None or link.explained else flaps + 1
            await asyncio.sleep(self._backoff(attempt, taken_over=link.taken_over or flaps >= FLAPS))

    async def _confirm(self) -> None:
        if self._still_ours is not None:
            await self._still_ours(self.client_id)

    async def _serve(self, link: PahoLink) -> float | None:
        """Connect and stay until the connection ends.

        Returns after how many seconds a connection that the broker had accepted was cut, if only before SUBACK; None
        when none was accepted, or this side gave it up.
        """
        try:
            await link.open(self._subscriptions, unsubscribe=self._unsubscribed, still_ours=self._confirm)
            self._link = link
            self._taken_over.clear()
            self._connected.set()
            self._connections += 1
            self._counters["connected"] += 1
            _log.info(
                "mqtt_connected", client=self._options.shown_client_id, host=self._options.host, port=self._options.port
            )
            await asyncio.wait([link.ended])
        except (OSError, TimeoutError) as error:
            self._counters["connection_failed"] += 1
            host, port = self._options.host, self._options.port
            _log.warning(
                "mqtt_connection_failed",
                client=self._options.shown_client_id,
                host=host,
                port=port,
                reason=text_of(error),
            )
        except Exception:  # noqa: BLE001
            # A mistake in here must not leave the node deaf for ever.
            self._counters["connection_failed"] += 1
            _log.exception("mqtt_connection_failed", client=self._options.shown_client_id)
        finally:
            cut = link.ended.done()
            self._forget_link()
            link.end("the connection is given up")
        if link.accepted_at is None or not cut:
            return None
        return asyncio.get_running_loop().time() - link.accepted_at

    def _lost(self, link: PahoLink) -> None:
        """Give up a connection in the moment of its end: what is published on it afterwards would wait for ever."""
        if self._link is link:  # else it was never in use, or this side ended it
            self._forget_link()
            self._counters["connection_lost"] += 1
            _log.warning("mqtt_connection_lost", client=self._options.shown_client_id, reason=link.ended.result())

    def _backoff(self, attempt: int, *, taken_over: bool) -> float:
        """Seconds until the next attempt: full jitter, so that clients do not come back in one wave."""
        if taken_over:
            self._counters["session_taken_over"] += 1
            _log.error("mqtt_session_taken_over", client=self._options.shown_client_id)
            self._taken_over.set()
            return TAKEN_OVER_BACKOFF.total_seconds() * (0.5 + self._rng.random() / 2)
        return self._rng.random() * min(LONGEST_BACKOFF.total_seconds(), 0.2 * 2.0 ** min(attempt, 10))

    def _current_link(self) -> PahoLink:
        if self._link is None:
            raise BrokerUnavailableError("not connected to the MQTT broker")
        return self._link

    def _forget_link(self) -> None:
        self._link = None
        self._connected.clear()
