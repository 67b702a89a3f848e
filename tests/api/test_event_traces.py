"""Traces of what is appended to the event log, from the settings to the collector."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.api.rig import running
from tests.api.test_events import TOPIC, appended, is_ready, say
from tests.waiting import eventually


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr("app.runtime.tracing.OTLPSpanExporter", lambda *_given, **_named: exporter)
    return exporter


def events_of(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [one for one in exporter.get_finished_spans() if one.name == name]


async def test_events_of_devices_and_of_backends_are_traced(collected: InMemorySpanExporter) -> None:
    async with running(events={"url": "memory://"}, tracing={"endpoint": "http://collector"}) as rig:
        await eventually(lambda: is_ready(rig))
        say(rig, TOPIC, {"n": 1})
        await appended(rig, 1)
        published = await rig.http.post("/v1/events", json=[{"topic": "fleet/note", "data": 1}] * 3)
        changed = await rig.http.post("/v1/transactions", json={"write": [{"topic": "fleet/note", "data": 2}]})
        assert (published.status_code, changed.status_code) == (200, 200)
    batches, appends = events_of(collected, "events batch"), events_of(collected, "events append")
    assert (
        {one.context.span_id for one in batches if one.context is not None}
        == {one.parent.span_id for one in appends if one.parent is not None}
        != set()
    )
    alone = [one.attributes or {} for one in appends if one.parent is None]
    assert [(one["homing.database"], one["homing.count"]) for one in alone] == [("events", 3), ("events", 1)]


async def test_without_a_collector_nothing_is_made(collected: InMemorySpanExporter) -> None:
    async with running(events={"url": "memory://"}) as rig:
        await eventually(lambda: is_ready(rig))
        say(rig, TOPIC, {"n": 1})
        await appended(rig, 1)
    assert collected.get_finished_spans() == ()
