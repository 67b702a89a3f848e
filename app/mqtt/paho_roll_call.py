"""Asks on a topic over a connection of its own, on paho."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from app.core.errors import BrokerUnavailableError
from app.core.messages import Publication
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions, tls_context
from app.mqtt.paho_drain import text_of
from app.mqtt.paho_link import PahoLink


class PahoRollCall:
    """A `RollCall` over TCP or TLS. `counters` gets what a connection counts."""

    def __init__(self, options: MqttOptions, counters: Counter[str]) -> None:
        self._options = options
        self._counters = counters
        self._tls = tls_context(options)

    async def ask(self, topic: str, question: bytes, is_answer: Callable[[bytes], bool], patience: timedelta) -> bool:
        answered = asyncio.Event()

        def hear(delivery: InboundDelivery) -> None:
            if is_answer(delivery.message.payload):
                answered.set()
            delivery.acknowledge()

        link = PahoLink(self._options, self._tls, hear, self._counters, clean=True)
        try:
            await link.open([Subscription(topic, qos=0)])
            _written = link.publish(Publication(topic, question, qos=0))
            with suppress(TimeoutError):
                await asyncio.wait_for(answered.wait(), patience.total_seconds())
            if link.ended.done():
                raise ConnectionError(link.ended.result())
            await link.disconnect(keep_session=False)
        except (OSError, TimeoutError) as error:
            raise BrokerUnavailableError(f"nobody could be asked: {text_of(error)}") from None
        finally:
            link.end("asked")
        return answered.is_set()
