"""Store and MQTT client with spans around what matters of a command. Made only where tracing is on (app/main.py)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from app.callbacks.delivery import Delivery
from app.core.callback import Answer, Registration
from app.core.clock import Clock
from app.core.messages import Publication
from app.core.routing import Outcome, Recorded
from app.mqtt.base import MqttClient
from app.store.base import Joined, Registered, StateStore
from app.tracing import CLIENT, CONSUMER, PRODUCER, TRACEPARENT, Attributes, Tracing, annotate, fail, same_trace

_MQTT: Final = "mqtt"


class TracedStore:
    """Keeps the context of each command on record, so that the node that gets the response can go on with the trace."""

    def __init__(self, store: StateStore, tracing: Tracing, clock: Clock) -> None:
        self._store = store
        self._tracing = tracing
        self._clock = clock
        self.start, self.close, self.queues, self.ping = store.start, store.close, store.queues, store.ping
        self.now, self.finish, self.mark, self.get = store.now, store.finish, store.mark, store.get
        self.outcomes, self.list_commands = store.outcomes, store.list_commands
        self.pending_of, self.sweep = store.pending_of, store.sweep

    async def register(self, registration: Registration) -> Registered | Joined:
        """See the port."""
        annotate(command_id=registration.command_id, profile=registration.profile, method=registration.method)
        trace = self._tracing.sampled()
        with self._tracing.span("store register", CLIENT):
            return await self._store.register(replace(registration, trace=trace) if trace else registration)

    async def respond(self, answer: Answer, receiver: str) -> Recorded:
        """See the port. To which trace a response belongs is known when the store has replied."""
        began = self._now()
        recorded = await self._store.respond(answer, receiver)
        if recorded.trace is None:
            return recorded
        replied, echoed = self._now(), answer.trace
        if echoed is not None and same_trace(echoed, recorded.trace):
            parent, link = echoed, None
        else:
            parent, link = recorded.trace, echoed
        about: Attributes = {
            "messaging.system": _MQTT,
            "messaging.destination.name": answer.topic,
            "homing.command_id": recorded.command_id or "",
            "homing.verdict": recorded.verdict.value,
        }
        span = self._tracing.begin("receive", CONSUMER, parent=parent, link=link, attributes=about, began_ns=began)
        self._tracing.begin("store respond", CLIENT, parent=span, began_ns=began).end(replied)
        span.end()
        return recorded

    def _now(self) -> int:
        return round(self._clock.wall() * 1_000_000_000)


class TracedMqtt:
    """A span from each publish to its PUBACK; the command carries it to its device."""

    def __init__(self, mqtt: MqttClient, tracing: Tracing) -> None:
        self._mqtt = mqtt
        self._tracing = tracing
        self.queues, self.start, self.wait_connected = mqtt.queues, mqtt.start, mqtt.wait_connected
        self.restart_as, self.quiet, self.drain = mqtt.restart_as, mqtt.quiet, mqtt.drain
        self.unsubscribe, self.stop = mqtt.unsubscribe, mqtt.stop

    @property
    def client_id(self) -> str:
        """See the port."""
        return self._mqtt.client_id

    @property
    def connected(self) -> bool:
        """See the port."""
        return self._mqtt.connected

    def publish(self, publication: Publication) -> asyncio.Future[None]:
        """See the port."""
        about: Attributes = {"messaging.system": _MQTT, "messaging.destination.name": publication.topic}
        span = self._tracing.begin("publish", PRODUCER, attributes=about)
        if (trace := self._tracing.sampled(span)) is not None:
            publication.user_properties = ((TRACEPARENT, trace), *publication.user_properties)
        try:
            puback = self._mqtt.publish(publication)
        except BaseException as error:
            fail(span, error)
            span.end()
            raise

        def settled(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                fail(span, error)
            span.end()

        puback.add_done_callback(settled)
        return puback


class TracedDelivery(Delivery):
    """With a span of the command's trace around each wake-up that carries it."""

    def __init__(self, tracing: Tracing, **parts: Any) -> None:
        super().__init__(**parts)
        self._tracing = tracing

    def wake(self, command_id: str, outcome: Outcome | None) -> None:
        """See `Delivery.wake`."""
        if outcome is None or outcome.trace is None:
            super().wake(command_id, outcome)
            return
        about: Attributes = {"homing.command_id": command_id, "homing.received_by": outcome.received_by or ""}
        with self._tracing.span("deliver", CONSUMER, outcome.trace, about):
            super().wake(command_id, outcome)
