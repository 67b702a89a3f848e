"""Traces over OpenTelemetry, where the settings name a collector: the only module that knows of it.

Spans leave in batches from a thread of their own, through a bounded queue. A collector that is away or slow costs
spans, which are counted, and one line in the log; never a command.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app import __version__
from app.runtime.telemetry import Counters
from app.settings import TracingSettings

TRACEPARENT: Final = "traceparent"
"""The header, user property and member that carries a context (W3C Trace Context, level 1)."""
QUEUE: Final = 4096
BATCH: Final = 512
EVERY_MS: Final = 1000
EXPORT_SECONDS: Final = 3.0
PATH: Final = "/v1/traces"

SERVER, CLIENT, PRODUCER, CONSUMER = SpanKind.SERVER, SpanKind.CLIENT, SpanKind.PRODUCER, SpanKind.CONSUMER

Attributes = Mapping[str, str | int]
OpenSpan = Span
"""One that was begun; whoever has it ends it."""

_propagator: Final = TraceContextTextMapPropagator()


class Tracing:
    """The tracer of one node."""

    def __init__(
        self,
        settings: TracingSettings,
        node_id: str,
        incarnation: str,
        counters: Counters,
        exporter: SpanExporter | None = None,
    ) -> None:
        # It logs each failure with its address, again and again; we count them.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        about = {
            "service.name": settings.service_name,
            "service.version": __version__,
            "service.instance.id": node_id,
            "homing.incarnation": incarnation,
        }
        outlet = _Outlet(
            exporter or OTLPSpanExporter(endpoint_of(settings.endpoint), timeout=EXPORT_SECONDS), node_id, counters
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
            resource=Resource.create(about),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(_SpanQueue(outlet, counters))
        self._tracer = self._provider.get_tracer("homing", __version__)

    @contextmanager
    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
        attributes: Attributes | None = None,
    ) -> Iterator[Span]:
        """Inside the block everything is part of this span; of an error only its kind is noted."""
        with self._tracer.start_as_current_span(
            name,
            context=context_of(parent) if parent is not None else None,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                fail(span, error)
                raise

    def begin(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        parent: Span | str | None = None,
        link: str | None = None,
        attributes: Attributes | None = None,
        began_ns: int | None = None,
    ) -> Span:
        """A span whose end is elsewhere; without `parent` in the current one. `began_ns` is since the epoch."""
        if isinstance(parent, str):
            context: Context | None = context_of(parent)
        else:
            context = None if parent is None else set_span_in_context(parent)
        links = [Link(_span_context(link))] if link is not None else None
        return self._tracer.start_span(name, context, kind, attributes, links=links, start_time=began_ns)

    @staticmethod
    def sampled(span: Span | None = None) -> str | None:
        """The text that carries this span, or the current one, to others; None when the span is not recorded."""
        span = get_current_span() if span is None else span
        if not span.is_recording():
            return None
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, set_span_in_context(span))
        return carrier.get(TRACEPARENT)

    async def close(self) -> None:
        """Send what waits, and end."""
        await asyncio.get_running_loop().run_in_executor(None, self._provider.shutdown)


def context_of(traceparent: str) -> Context:
    """The context that was carried here; an empty one when this is none."""
    return _propagator.extract({TRACEPARENT: traceparent}, Context())


def same_trace(one: str, other: str) -> bool:
    """True if both carry contexts of one trace."""
    found = _span_context(one)
    return found.is_valid and found.trace_id == _span_context(other).trace_id


def annotate(**attributes: str | int) -> None:
    """Add to the current span, if there is one."""
    get_current_span().set_attributes({f"homing.{name}": value for name, value in attributes.items()})


def fail(span: Span, error: BaseException) -> None:
    """Note that it failed; not with which words, as these may quote what a caller sent."""
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR))


def endpoint_of(url: str) -> str:
    """The collector's URL with the path of OTLP/HTTP, where it has none of its own."""
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + PATH


def _span_context(traceparent: str) -> SpanContext:
    return get_current_span(context_of(traceparent)).get_span_context()


class _SpanQueue(BatchSpanProcessor):
    """Counts what there is no room for; by two numbers that only one thread each changes."""

    def __init__(self, outlet: _Outlet, counters: Counters) -> None:
        super().__init__(outlet, max_queue_size=QUEUE, schedule_delay_millis=EVERY_MS, max_export_batch_size=BATCH)
        self._outlet = outlet
        self._counters = counters
        self._accepted = 0

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._accepted - self._outlet.taken >= QUEUE:
            self._counters["trace.dropped"] += 1
            return
        self._accepted += 1
        super().on_end(span)


class _Outlet(SpanExporter):
    """Exports, counts, and logs the first failure of a row and its end. Used by the exporting thread only."""

    def __init__(self, exporter: SpanExporter, node_id: str, counters: Counters) -> None:
        self.taken = 0
        self._exporter = exporter
        self._counters = counters
        self._failing = False
        self._log = structlog.get_logger().bind(node_id=node_id)  # a thread knows nothing of its node

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        try:
            result, reason = self._exporter.export(spans), "the collector does not take them"
        except Exception as error:  # noqa: BLE001 - what the exporter and its HTTP client raise is no closed set
            result, reason = SpanExportResult.FAILURE, type(error).__name__
        failed = result is not SpanExportResult.SUCCESS
        self._counters["trace.lost" if failed else "trace.exported"] += len(spans)
        if failed and not self._failing:
            self._log.warning("traces_lost", reason=reason, count=len(spans))
        elif self._failing and not failed:
            self._log.info("traces_resumed")
        self._failing = failed
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
