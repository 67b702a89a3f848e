"""Spans around what matters of a command, made when it has happened. Only where tracing is on (app/main.py)."""

from __future__ import annotations

import asyncio
from typing import Final

from app.callbacks.observer import Observer, Way
from app.core.clock import Clock
from app.core.commands.callback import Answer, Registration
from app.core.commands.routing import Outcome, Recorded
from app.core.messages import Publication, Receipt
from app.runtime.tracing import (
    CLIENT,
    CONSUMER,
    PRODUCER,
    TRACEPARENT,
    Attributes,
    OpenSpan,
    Tracing,
    annotate,
    fail,
    same_trace,
)

_MQTT: Final = "mqtt"


class Spans(Observer):
    """Makes the spans, and is the carrier of contexts (`TraceCarrier` in app/commands/send/publisher.py).

    The context of each command is kept with its record, so that the node that gets the response goes on with the trace.
    """

    def __init__(self, tracing: Tracing, clock: Clock) -> None:
        self._tracing = tracing
        self._clock = clock
        self._leaving: OpenSpan | None = None
        """The span of the publish that is under way: nobody else has a turn from `stamp` until the outcome is told."""

    def context(self) -> str | None:
        return self._tracing.sampled()

    def stamp(self, publication: Publication) -> None:
        """The span lasts until PUBACK."""
        about: Attributes = {"messaging.system": _MQTT, "messaging.destination.name": publication.topic}
        self._leaving = self._tracing.begin("publish", PRODUCER, attributes=about)
        if (trace := self._tracing.sampled(self._leaving)) is not None:
            publication.user_properties = ((TRACEPARENT, trace), *publication.user_properties)

    def published(self, command_id: str, publication: Publication, puback: asyncio.Future[Receipt]) -> None:
        span, self._leaving = self._leaving, None
        if span is None:
            return

        def settled(future: asyncio.Future[Receipt]) -> None:
            _end(span, None if future.cancelled() else future.exception())

        puback.add_done_callback(settled)

    def unsent(self, command_id: str, error: BaseException) -> None:
        """End the span with the error.

        Once the broker's connection has taken the command, the span ends with its PUBACK's future.
        """
        span, self._leaving = self._leaving, None
        if span is not None:
            _end(span, error)

    def registered(self, registration: Registration, opened_at: float) -> None:
        self._store_register(registration, opened_at)

    def joined(self, registration: Registration, opened_at: float) -> None:
        self._store_register(registration, opened_at)

    def refused(self, registration: Registration, opened_at: float, error: BaseException) -> None:
        self._store_register(registration, opened_at, error)

    def recorded(self, recorded: Recorded, answer: Answer, arrived_at: float, now: float) -> None:
        """To which trace a response belongs is known when the store has replied."""
        if recorded.trace is None:
            return
        began, replied, echoed = self._nanoseconds(arrived_at), self._nanoseconds(now), answer.trace
        if echoed is not None and same_trace(echoed, recorded.trace):
            parent, link = echoed, None
        else:
            parent, link = recorded.trace, echoed
        about: Attributes = {
            "messaging.system": _MQTT,
            "messaging.destination.name": answer.topic.partition("#")[0],  # what is behind it is the kind of response
            "homing.command_id": recorded.command_id or "",
            "homing.verdict": recorded.verdict.value,
        }
        span = self._tracing.begin("receive", CONSUMER, parent=parent, link=link, attributes=about, began_ns=began)
        self._tracing.begin("store respond", CLIENT, parent=span, began_ns=began).end(replied)
        span.end()

    def brought(self, outcome: Outcome, way: Way) -> None:
        """A moment: the context comes with the wake-up, and not out of the store."""
        if way is Way.INLINE and outcome.trace is not None:
            about: Attributes = {
                "homing.command_id": outcome.command_id,
                "homing.received_by": outcome.received_by or "",
            }
            self._tracing.begin("deliver", CONSUMER, parent=outcome.trace, attributes=about).end()

    def _store_register(self, registration: Registration, opened_at: float, error: BaseException | None = None) -> None:
        annotate(command_id=registration.command_id, profile=registration.profile, method=registration.method)
        _end(self._tracing.begin("store register", CLIENT, began_ns=self._nanoseconds(opened_at)), error)

    def _nanoseconds(self, at: float) -> int:
        """An instant of the monotonic clock as spans have it: since the epoch."""
        return round((self._clock.wall() - self._clock.monotonic() + at) * 1_000_000_000)


def _end(span: OpenSpan, error: BaseException | None) -> None:
    if error is not None:
        fail(span, error)
    span.end()
