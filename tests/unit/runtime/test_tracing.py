from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from app.callbacks.observer import Observers
from app.commands.send.absence import Absence
from app.commands.send.publisher import Publisher
from app.core.commands.command import Command, CommandState
from app.core.errors import BrokerUnavailableError, ConfigurationError, FencedError, StoreUnavailableError
from app.core.events.batches import BatchId, CallId
from app.core.events.event import Database, Entry, Position, Shard
from app.events.writer import EventWriter, PendingEntry
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient
from app.observers.event_spans import LogSpans
from app.observers.spans import Spans
from app.runtime.system import SystemClock
from app.runtime.telemetry import Counters
from app.runtime.tracing import CLIENT, CONSUMER, QUEUE, Tracing, context_of, endpoint_of, same_trace
from app.settings import Settings, TracingSettings, load_settings
from app.store.memory.events import MemoryEventLog
from tests.unit.assembly import PROFILES
from tests.waiting import eventually

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Kept(SpanExporter):
    """Keeps what it gets; waits while `closed`."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self.open = threading.Event()
        self.open.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.open.wait(10)
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None: ...


@asynccontextmanager
async def tracer(counters: Counters, **settings: float) -> AsyncIterator[tuple[Tracing, Kept]]:
    kept = Kept()
    made = Tracing(TracingSettings(endpoint="http://x", **settings), "n1", "i1", counters, kept)
    yield made, kept
    kept.open.set()
    await made.close()


async def test_a_slow_collector_costs_spans_which_are_counted_and_never_memory() -> None:
    counters = Counters()
    async with tracer(counters) as (tracing, kept):
        kept.open.clear()
        for _ in range(QUEUE + 1000):
            tracing.begin("x").end()
        assert 0 < counters["trace.dropped"] <= 1000
    assert len(kept.spans) + counters["trace.dropped"] == QUEUE + 1000
    assert counters["trace.exported"] == len(kept.spans)


async def test_an_error_is_noted_by_its_kind_and_not_by_its_words() -> None:
    async with tracer(Counters()) as (tracing, kept):
        with pytest.raises(ValueError, match="secret"), tracing.span("x"):
            raise ValueError("secret")
    (span,) = kept.spans
    assert dict(span.attributes or {}) == {"error.type": "ValueError"}
    assert span.events == ()
    assert span.status.description is None
    assert not span.status.is_ok


async def test_the_callers_decision_counts_more_than_the_ratio() -> None:
    async with tracer(Counters(), sample_ratio=0) as (tracing, kept):
        for parent in (PARENT, PARENT[:-1] + "0", "rubbish", ""):
            tracing.begin("x", parent=parent).end()
    assert len(kept.spans) == 1


async def test_a_publish_that_is_refused_ends_its_span() -> None:
    async with tracer(Counters()) as (tracing, kept):
        spans, clock = Spans(tracing, SystemClock()), SystemClock()
        refused_by, taken_by = (LoopbackMqttClient(LoopbackBroker(), "c", Counters()) for _ in range(2))
        await taken_by.start([], lambda delivery: delivery.acknowledge())
        await eventually(lambda: taken_by.connected)
        observers = Observers(Counters(), [spans])
        command = a_command(clock)
        with pytest.raises(BrokerUnavailableError) as caught:
            publisher(refused_by, observers, spans).publish(command)
        for tell in observers.unsent:
            tell(command.id, caught.value)
        publication, puback = publisher(taken_by, observers, spans).publish(command)
        await puback
        await taken_by.stop()
        await asyncio.sleep(0)
    refused, published = kept.spans
    assert (refused.status.is_ok, published.status.is_ok) == (False, True)
    assert published.context is not None
    traceparent = dict(publication.user_properties)["traceparent"]
    assert format(published.context.span_id, "016x") in traceparent


class Reluctant(MemoryEventLog):
    """Fails with these errors, one after the other, before it takes anything."""

    errors: list[Exception]

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | CallId | None = None
    ) -> Position:
        if self.errors:
            raise self.errors.pop(0)
        return await super().append(shard, entries, epoch, batch)


def about(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


@pytest.mark.parametrize(
    ("errors", "is_in"),
    [
        ([], True),
        ([StoreUnavailableError("away: secret")], True),
        ([StoreUnavailableError("away: secret"), FencedError("another one", 2)], False),
    ],
)
async def test_a_batch_of_events_is_a_trace_with_each_try_to_append_it(errors: list[Exception], is_in: bool) -> None:  # noqa: FBT001 - what is expected
    log = Reluctant([Database("events", 4)], SystemClock())
    log.errors = list(errors)
    shard, waiting = Shard("events", 2), [PendingEntry(Entry("a/b", b"12345"), None, lambda _is_in: None)] * 3
    async with tracer(Counters()) as (tracing, kept):
        writer = EventWriter(
            log,
            name="w",
            flush_interval=timedelta(0),
            max_items=10,
            bound=10,
            admit=lambda _database: None,
            counters=Counters(),
            spans=LogSpans(tracing),
        )
        with tracing.span("somebody else's"):
            assert await writer.append(shard, waiting) is is_in
    *tries, batch, _ = kept.spans
    assert batch.context is not None
    assert (batch.name, batch.kind, batch.parent) == ("events batch", CONSUMER, None)
    carried = {"homing.database": "events", "homing.shard": 2, "homing.count": 3, "homing.bytes": 72}
    failed = [{"error.type": type(error).__name__} for error in errors]
    assert about(batch) == carried | ({} if is_in else {"error.type": "FencedError"})
    assert [about(one) for one in tries] == [carried | error for error in [*failed, *([{}] if is_in else [])]]
    assert {(one.name, one.kind) for one in tries} == {("events append", CLIENT)}
    assert all(one.parent is not None and one.parent.span_id == batch.context.span_id for one in tries)
    assert batch.status.is_ok is is_in


def publisher(mqtt: LoopbackMqttClient, observers: Observers, spans: Spans) -> Publisher:
    absence = Absence(mqtt=mqtt, profiles=PROFILES, contradicted=lambda: False)
    return Publisher(mqtt=mqtt, profiles=PROFILES, observers=observers, absence=absence, carrier=spans)


def a_command(clock: SystemClock) -> Command:
    now = round(clock.wall() * 1_000_000)
    return Command(
        id="042-00000000000000000000000001",
        device_id="lamp-1",
        method="blink",
        params=b"{}",
        profile="homing",
        state=CommandState.PENDING,
        home_node="n1",
        created_at=now,
        deadline=now + 1_000_000,
    )


def test_what_is_no_context_belongs_to_no_trace() -> None:
    assert same_trace(PARENT, PARENT[:36] + "b7ad6b7169203332-01")
    assert not same_trace("rubbish", "rubbish")
    assert not same_trace("rubbish", PARENT)
    assert not context_of("")


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp/v1/traces", "https://c/otlp/v1/traces"),
    ],
)
def test_the_path_of_otlp_is_added_where_there_is_none(given: str, used: str) -> None:
    assert endpoint_of(given) == used


def test_off_by_default() -> None:
    assert Settings().tracing.endpoint == ""


def test_a_wrong_endpoint_gives_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match="HOMING_TRACING_ENDPOINT: scheme 'grpc' is unknown; allowed: http"):
        load_settings(tracing={"endpoint": "grpc://c:4317"})
