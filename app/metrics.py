"""The content of `/metrics`: a node's counters, queues and states, read when somebody asks and not before.

`FAMILIES` is the whole list, and docs/operations/metrics.md repeats it. Nothing is labelled with what a caller or a
device gives: labels are profiles, outcomes, names that stand in our code, and the first names of queues.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import cache
from itertools import chain
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from app import __version__
from app.access import counters as access
from app.api import counters as api
from app.audit import counters as audit
from app.broker import counters as broker
from app.callbacks import counters as callbacks
from app.cluster import counters as cluster
from app.commands import counters as commands
from app.commands.held import gauges as held_gauges
from app.events import counters as events
from app.fleets import counters as fleets
from app.latency import counters as latency
from app.mqtt import counters as mqtt
from app.node import Health, NodeState, is_well
from app.observers.measures import CommandMeasures
from app.queues import counters as queues
from app.queues import gauges as queue_gauges
from app.runtime.families import Family, Labels
from app.runtime.histograms import Histogram
from app.runtime.telemetry import Counters, Fill
from app.store import counters as store
from app.webhooks import counters as webhooks

_EVENTS: Final = Family("homing_events", "counter", "Everything else that is counted, by name", ("event",))

TABLES: Final = (
    commands.COUNTERS,
    callbacks.COUNTERS,
    cluster.COUNTERS,
    mqtt.COUNTERS,
    broker.COUNTERS,
    store.COUNTERS,
    api.COUNTERS,
    access.COUNTERS,
    audit.COUNTERS,
    latency.COUNTERS,
    webhooks.COUNTERS,
    events.COUNTERS,
    queues.COUNTERS,
    fleets.COUNTERS,
)
"""The counters of all subjects, shown by every node, so that dashboards find them at zero."""

_COMMANDS: Final = Family("homing_commands", "counter", "Ended commands", ("profile", "outcome"))
_IN_FLIGHT: Final = Family("homing_commands_in_flight", "gauge", "Open commands whose home is this node")
_WAITERS: Final = Family("homing_waiters", "gauge", "Callers that are parked on this node")
_QUEUE: Final = Family("homing_queue_size", "gauge", "How much is in a bounded queue", ("queue",))
_BOUND: Final = Family("homing_queue_bound", "gauge", "How much it takes at most", ("queue",))
_READY: Final = Family("homing_node_ready", "gauge", "1 when callers should be sent here, as /readyz says")
_STATE: Final = Family("homing_node_state", "gauge", "1 for the state that the node is in", ("state",))
_HEALTHY: Final = Family(
    "homing_dependency_up", "gauge", "1 when store, mqtt, cluster or canary are well, as /readyz says", ("dependency",)
)
_BUILD: Final = Family("homing_build", "info", "Versions, and the node's id", ("version", "python", "node_id"))
_LAST_ROUND_TRIP: Final = Family(
    "homing_store_last_round_trip_seconds", "gauge", "How long the latest round trip to the store took"
)
_PRIMARY: Final = Family(
    "homing_store_primary_up", "gauge", "1 for a primary of a Redis Cluster that answers", ("primary",)
)

_TOTAL: Final = Family(
    "homing_command_seconds", "histogram", "Home: from the call to the hand-over of the outcome", ("profile", "outcome")
)
_RESPONSE: Final = Family(
    "homing_response_seconds",
    "histogram",
    "Home: from handing a command over to knowing its outcome. Where forwarded, with the forward",
    ("forwarded",),
)
_REGISTER: Final = Family("homing_register_seconds", "histogram", "Home: from the call to the store's reply")
_PUBLISH: Final = Family("homing_publish_seconds", "histogram", "Home: from handing a command over to its PUBACK")
_RECORD: Final = Family(
    "homing_record_seconds", "histogram", "Receiving node: from a response to the store's reply, before its PUBACK"
)
_DELIVER: Final = Family(
    "homing_delivery_seconds", "histogram", "Home: from the wake-up to the hand-over to a parked caller"
)
_BATCH: Final = Family("homing_store_batch_calls", "histogram", "Calls in one round trip to the store")
_WAIT: Final = Family(
    "homing_store_wait_seconds", "histogram", "The longest that a call of a round trip has waited for its turn"
)
_ROUND_TRIP: Final = Family("homing_store_round_trip_seconds", "histogram", "Round trips to the store")

FAMILIES: Final = (
    *(_COMMANDS, _TOTAL, _IN_FLIGHT, _WAITERS, _REGISTER, _PUBLISH, _RESPONSE, _RECORD, _DELIVER),
    *(_READY, _STATE, _HEALTHY, _BUILD, _QUEUE, _BOUND),
    *(_BATCH, _WAIT, _ROUND_TRIP, _LAST_ROUND_TRIP, _PRIMARY),
    *held_gauges.FAMILIES,
    *queue_gauges.FAMILIES,
    *dict.fromkeys(family for table in TABLES for family in table.families()),
    _EVENTS,
)
"""Every metric of our own. Those of the process (`process_*`, `python_gc_*`) are the client library's."""
_COUNTED: Final = tuple(family for family in FAMILIES if family.kind == "counter" and family is not _COMMANDS)
ALWAYS_SHOWN: Final = tuple(name for table in TABLES for name in table.names())
"""The counters that are shown before they have counted."""


class MetricsExposition:
    """The metrics of a node, in the formats that scrapers ask for."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._collector = metrics
        self._registry.register(self._collector)

    def render(self, accept: str, health: Health) -> tuple[bytes, str]:
        """The text and its content type; OpenMetrics 1.0 when `accept` names it, else Prometheus' own format."""
        self._collector.health = health
        if _wants_openmetrics(accept):
            text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]  # it has no types
            return text, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


def _wants_openmetrics(accept: str) -> bool:
    """The library's own choice fails on a version that is none, and repeats whatever it is given as one."""
    for one in accept.split(","):
        media_type, *parameters = (part.strip() for part in one.split(";"))
        versions = [part for part in parameters if part.startswith("version=")]
        if media_type == "application/openmetrics-text" and versions in ([], ["version=1.0.0"]):
            return True
    return False


class NodeMetrics(Collector):
    """The counters and measures of a node, with its queues and states, as metric families."""

    def __init__(
        self,
        *,
        node_id: str,
        measures: CommandMeasures,
        open_commands: Sized,
        waiters: Sized,
        fills: Callable[[], Mapping[str, Fill]],
        gauges: Callable[[], Iterable[tuple[Family, Mapping[Labels, float]]]],
        counters: Counters,
    ) -> None:
        self.health: Health | None = None
        self._node_id = node_id
        self._measures = measures
        self._open_commands = open_commands
        self._waiters = waiters
        self._fills = fills
        self._gauges = gauges
        self._counts = counters

    def collect(self) -> Iterator[Metric]:
        """All of them, as they are now."""
        return chain(self._commands(), self._state(), self._store(), self._counters())

    def describe(self) -> Iterable[Metric]:
        """Nothing to be known beforehand: the names are checked by a test."""
        return ()

    def _commands(self) -> Iterator[Metric]:
        measures = self._measures
        yield _counter(_COMMANDS, measures.commands)
        yield _histogram(_TOTAL, {labels: one for labels, one in measures.total.items() if any(one.counts)})
        yield _gauge(_IN_FLIGHT, {(): len(self._open_commands)})
        yield _gauge(_WAITERS, {(): len(self._waiters)})
        yield _histogram(_REGISTER, {(): measures.register})
        yield _histogram(_PUBLISH, {(): measures.publish})
        yield _histogram(_RESPONSE, {(str(forwarded).lower(),): one for forwarded, one in measures.respond.items()})
        yield _histogram(_RECORD, {(): measures.record})
        yield _histogram(_DELIVER, {(): measures.deliver})

    def _state(self) -> Iterator[Metric]:
        health = self.health
        if health is not None:
            yield _gauge(_READY, {(): health.ready})
            yield _gauge(_HEALTHY, {(name,): is_well(said) for name, said in health.checks.items()})
            yield _gauge(_STATE, {(state,): health.state is state for state in NodeState})
        build = InfoMetricFamily(_BUILD.name, _BUILD.about)
        build.add_metric((), {"version": __version__, "python": platform.python_version(), "node_id": self._node_id})
        yield build
        fills = self._fills()
        yield _gauge(_QUEUE, {(name,): fill.size for name, fill in fills.items()})
        yield _gauge(_BOUND, {(name,): fill.bound for name, fill in fills.items()})
        shown = dict(self._gauges())
        for family in dict.fromkeys((*held_gauges.FAMILIES, *queue_gauges.FAMILIES, *shown)):
            yield _gauge(family, shown.get(family, {}))

    def _store(self) -> Iterator[Metric]:
        measures = self._measures.store
        yield _histogram(_BATCH, {(): measures.batch})
        yield _histogram(_WAIT, {(): measures.wait})
        yield _histogram(_ROUND_TRIP, {(): measures.round_trip})
        yield _gauge(_LAST_ROUND_TRIP, {(): measures.last_round_trip})
        yield _gauge(_PRIMARY, {(place,): up for place, up in measures.primaries().items()})

    def _counters(self) -> Iterator[Metric]:
        """All counters: one that is new and in no table shows as well."""
        values: dict[Family, dict[Labels, int]] = {family: {} for family in _COUNTED}
        counters = self._counts
        for name in dict.fromkeys((*ALWAYS_SHOWN, *counters)):
            family, labels = _place_of(name)
            values[family][labels] = values[family].get(labels, 0) + counters[name]
        return (_counter(family, by_labels) for family, by_labels in values.items())


@cache
def _place_of(counter: str) -> tuple[Family, Labels]:
    return next((place for table in TABLES if (place := table.place_of(counter))), (_EVENTS, (counter,)))


def _counter(family: Family, values: Mapping[Labels, float]) -> Metric:
    metric = CounterMetricFamily(family.name, family.about, labels=family.labels)
    for labels, value in values.items():
        metric.add_metric(labels, value)
    return metric


def _gauge(family: Family, values: Mapping[Labels, float]) -> Metric:
    metric = GaugeMetricFamily(family.name, family.about, labels=family.labels)
    for labels, value in values.items():
        metric.add_metric(labels, value)
    return metric


def _histogram(family: Family, values: Mapping[Labels, Histogram]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.about, labels=family.labels)
    for labels, one in values.items():
        bounds = [*map(floatToGoString, one.bounds), "+Inf"]
        metric.add_metric(labels, list(zip(bounds, one.cumulated(), strict=True)), one.total)
    return metric
