"""What `/metrics` says: a node's counters, queues and states, read when somebody asks and not before.

`FAMILIES` is the whole list, and docs/operations/metrics.md repeats it. Nothing is labelled with what a caller or a
device gives: labels are profiles, outcomes, and names that stand in our code.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import chain
from typing import Final, Literal, NamedTuple

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
from app.core.access.callers import TokenFault
from app.core.commands.routing import MatchResult
from app.node import Health, NodeState, is_well
from app.observers.measures import CommandMeasures
from app.runtime.histograms import Histogram
from app.runtime.telemetry import Counters, Fill

Labels = tuple[str, ...]
Kind = Literal["counter", "gauge", "histogram", "info"]


class Family(NamedTuple):
    """A metric: its name (counters get `_total` in the output, infos `_info`), what it is about, and its labels."""

    name: str
    kind: Kind
    about: str
    labels: Labels = ()

    @property
    def shown(self) -> str:
        """The name as dashboards use it."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")


_LOCAL: Final = "local"
_COUNTED: Final = (
    (
        Family("homing_responses", "counter", "Responses of devices that are on record, by what they were", ("kind",)),
        {
            "response.local": _LOCAL,
            "response.forwarded": "forwarded",
            "response.late": "late",
            "response.progress": "progress",
        },
    ),
    (
        Family("homing_responses_unrecorded", "counter", "Responses that the store did not take; they got no PUBACK"),
        {"response.not_recorded": ""},
    ),
    (
        Family("homing_responses_qos0", "counter", "Responses that came with QoS 0, for which nothing is promised"),
        {"response.qos0": ""},
    ),
    (
        Family("homing_wakeups", "counter", "Wake-ups that ended a command here: with the outcome, or read", ("kind",)),
        {"wakeup.delivered": "inline", "wakeup.fetched": "fetched"},
    ),
    (
        Family(
            "homing_wakeups_lost", "counter", "Outcomes that were found by reading the store, as no wake-up had come"
        ),
        {"sweep.delivered": ""},
    ),
    (
        Family("homing_wakeup_reconnects", "counter", "Connections for wake-ups that broke, or could not be made"),
        {"wakeup.reconnects": ""},
    ),
    (
        Family(
            "homing_sweep_timed_out", "counter", "Commands of other nodes that this node ended after their deadline"
        ),
        {"sweep.timed_out": ""},
    ),
    (
        Family(
            "homing_commands_repeated", "counter", "Commands of dead nodes that this node sent, as they may be repeated"
        ),
        {"repeat.sent": ""},
    ),
    (
        Family("homing_adopted_sessions", "counter", "MQTT sessions of dead nodes that this node emptied and ended"),
        {"adoption.sessions": ""},
    ),
    (
        Family("homing_adopted_responses", "counter", "Responses that were found in them"),
        {"adoption.responses": ""},
    ),
    (
        Family("homing_http_connections_opened", "counter", "Connections of callers that were taken"),
        {"http.opened": ""},
    ),
    (
        Family("homing_streams_opened", "counter", "Streams of events that were begun"),
        {"stream.opened": ""},
    ),
    (
        Family("homing_streams_refused", "counter", "Streams for which there was no place"),
        {"stream.refused": ""},
    ),
    (
        Family("homing_streams_ended", "counter", "Streams that ended before what they tell, by why", ("reason",)),
        {f"stream.{why}": why for why in ("hung_up", "dismissed", "unwanted", "too_slow", "failed")},
    ),
    (
        Family("homing_stream_gaps", "counter", "Streams of all commands that were told of a gap"),
        {"happening.gaps": ""},
    ),
    (
        Family("homing_happenings", "counter", "What this node read of all commands, while streams follow them"),
        {"happening.read": ""},
    ),
    (
        Family("homing_explanations_incomplete", "counter", "Explanations that a node did not answer for in time"),
        {"explain.unanswered": ""},
    ),
    (
        Family("homing_logins", "counter", "Attempts to log in with a password, and logouts", ("result",)),
        {f"login.{result}": result for result in ("accepted", "refused", "limited", "ended")},
    ),
    (
        Family("homing_tokens_refused", "counter", "Tokens that count for nothing, by why", ("reason",)),
        {f"token.{fault}": fault for fault in TokenFault},
    ),
    (
        Family("homing_oidc_fetches", "counter", "Fetches of an OIDC issuer's keys", ("result",)),
        {"oidc.fetched": "good", "oidc.failed": "failed"},
    ),
    (
        Family("homing_commands_joined", "counter", "Calls that joined a command by its idempotency key"),
        {"command.joined": ""},
    ),
    (
        Family(
            "homing_callers_left", "counter", "Parked callers that did not get the outcome here, by why", ("reason",)
        ),
        {"caller.hung_up": "hung_up", "caller.dismissed": "dismissed"},
    ),
    (
        Family(
            "homing_publishes_failed", "counter", "Commands that the broker did not take, or perhaps took", ("reason",)
        ),
        {"publish.refused": "unsent", "publish.unconfirmed": "unconfirmed"},
    ),
    (
        Family("homing_publishes_unmatched", "counter", "Commands to topics that nobody is subscribed to (0x10)"),
        {"publish_unmatched": ""},
    ),
    (
        Family("homing_mqtt_connections", "counter", "Connections to the broker that were made"),
        {"connected": ""},
    ),
    (
        Family("homing_mqtt_connections_lost", "counter", "Connections to the broker that broke"),
        {"connection_lost": ""},
    ),
    (
        Family("homing_mqtt_connections_failed", "counter", "Connections to the broker that could not be made"),
        {"connection_failed": ""},
    ),
    (
        Family(
            "homing_mqtt_session_taken_over", "counter", "Times that another client used the client id of this node"
        ),
        {"session_taken_over": ""},
    ),
    (
        Family(
            "homing_mqtt_reading_paused", "counter", "Times that this node stopped reading until responses were settled"
        ),
        {"reading_paused": ""},
    ),
    (
        Family("homing_store_reconnects", "counter", "Connections to the store that were made anew"),
        {"store.reconnected": ""},
    ),
    (
        Family(
            "homing_store_calls_failed", "counter", "Calls to the store that ended without a reply, by why", ("reason",)
        ),
        {
            "store.rejected": "queue_full",
            "store.timed_out": "timed_out",
            "store.failed": "refused",
            "store.out_of_memory": "out_of_memory",
        },
    ),
    (
        Family("homing_store_calls_repeated", "counter", "Calls that were sent again after a connection had broken"),
        {"store.retried": ""},
    ),
    (
        Family("homing_store_scripts_reloaded", "counter", "Times that Redis had forgotten the scripts"),
        {"store.scripts_reloaded": ""},
    ),
    (
        Family(
            "homing_lease_lost", "counter", "Times that this node lost its lease and had to begin as a new incarnation"
        ),
        {"lease.lost": ""},
    ),
    (
        Family("homing_canary", "counter", "Messages of this node to itself over the response path", ("fate",)),
        {"canary.sent": "sent", "canary.returned": "returned", "canary.late": "late", "canary.refused": "refused"},
    ),
    (
        Family("homing_canary_lost", "counter", "Messages of this node to itself that did not come back in time"),
        {"canary.lost": ""},
    ),
    (
        Family("homing_charter_changed", "counter", "Times that the store had lost what the nodes of a cluster share"),
        {"charter.changed": ""},
    ),
    (
        Family(
            "homing_charter_copied", "counter", "Times that the store turned out to be a copy of a living cluster's"
        ),
        {"charter.copied": ""},
    ),
    (
        Family("homing_lease_renewals_failed", "counter", "Renewals of the lease to which Redis gave no answer"),
        {"lease.renewal_failed": ""},
    ),
)
"""Counters by name, each with the value of its family's label."""

_DROPPED: Final = Family("homing_dropped", "counter", "Messages that were dropped, by why", ("reason",))
_DROPPED_OF: Final = Family(
    "homing_profile_dropped",
    "counter",
    "Messages on topics of a profile that were dropped, by why",
    ("profile", "reason"),
)
_AUDIT: Final = Family("homing_audit_lines", "counter", "Lines of the audit, by what became of them", ("result",))
_REFUSED: Final = Family("homing_refused", "counter", "Requests that were refused, by problem type", ("problem",))
_HTTP_CLOSED: Final = Family(
    "homing_http_connections_closed", "counter", "Connections that this node closed or turned away, by why", ("reason",)
)
_LATENCY_LOG: Final = Family("homing_latency_log_events", "counter", "What happened to the latency log", ("event",))
_EXPLAINED: Final = Family("homing_explanations", "counter", "Commands that were explained", ("verdict",))
_WEBHOOKS: Final = Family("homing_webhook_events", "counter", "What happened to webhooks", ("event",))
_LOG: Final = Family("homing_device_events", "counter", "What happened to events of devices", ("event",))
_PRESENCE: Final = Family("homing_device_presence", "counter", "Devices that have come or gone", ("event",))
_EVENTS: Final = Family("homing_events", "counter", "Everything else that is counted, by name", ("event",))

_PREFIXES: Final = (
    ("drop.", _DROPPED),
    ("dropped_of.", _DROPPED_OF),
    ("refused.", _REFUSED),
    ("audit.", _AUDIT),
    ("http.closed.", _HTTP_CLOSED),
    ("latency.", _LATENCY_LOG),
    ("webhooks.", _WEBHOOKS),
    ("explained.", _EXPLAINED),
    ("events.", _LOG),
    ("presence.", _PRESENCE),
)
_DROPPED_BY_THE_LINK: Final = ("undecodable_topic", "packet_too_large")
_SHOWN_AT_ZERO: Final = (
    *(f"drop.{verdict}" for verdict in (MatchResult.DUPLICATE, MatchResult.UNKNOWN, MatchResult.MISMATCH)),
    *(
        "drop.retained",
        "drop.foreign_id",
        "drop.bad_wake_up",
        "drop.forged_wake_up",
        "drop.unreadable_record",
        *("drop.damaged_block", "drop.damaged_value"),
        "drop.not_json",
        "drop.no_rule_holds",
    ),
    "explained.no_idea",
    *("events.appended", "events.refused", "events.retried", "presence.online", "presence.offline"),
    *("events.cold_retried", "events.cold_stuck", "events.damaged_files"),
    *("webhooks.dropped_endpoint_full", "webhooks.dropped_tenant_full"),
    *("webhooks.delivered", "webhooks.failed", "webhooks.given_up", "webhooks.lost"),
    *("latency.records", "latency.write_failures", "latency.dropped_full_buffer", "latency.dropped_write_failed"),
    "audit.dropped",
    *("http.closed.too_many", "http.closed.too_many_of_peer", "http.closed.made_room", "http.closed.unreadable"),
    *("refused.limit-reached", "refused.store-unavailable", "refused.broker-unavailable", "refused.node-draining"),
)
"""An increase can only be seen of what was there before; these are worth that."""

_BY_COUNTER: Final[Mapping[str, tuple[Family, Labels]]] = {
    name: (family, (value,) if family.labels else ()) for family, names in _COUNTED for name, value in names.items()
} | {name: (_DROPPED, (name,)) for name in _DROPPED_BY_THE_LINK}

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
    *(_BATCH, _WAIT, _ROUND_TRIP, _LAST_ROUND_TRIP),
    *(family for family, _ in _COUNTED),
    *(_DROPPED, _DROPPED_OF, _AUDIT, _REFUSED, _HTTP_CLOSED, _LATENCY_LOG, _EXPLAINED, _WEBHOOKS, _LOG, _PRESENCE),
    _EVENTS,
)
"""Every metric of our own. Those of the process (`process_*`, `python_gc_*`) are the client library's."""


class Exposition:
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
    """What a node counts and measures, with its queues and states, as metric families."""

    def __init__(
        self,
        *,
        node_id: str,
        measures: CommandMeasures,
        open_commands: Sized,
        waiters: Sized,
        fills: Callable[[], Mapping[str, Fill]],
        counters: Counters,
    ) -> None:
        self.health: Health | None = None
        self._node_id = node_id
        self._measures = measures
        self._open_commands = open_commands
        self._waiters = waiters
        self._fills = fills
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

    def _store(self) -> Iterator[Metric]:
        store = self._measures.store
        yield _histogram(_BATCH, {(): store.batch})
        yield _histogram(_WAIT, {(): store.wait})
        yield _histogram(_ROUND_TRIP, {(): store.round_trip})
        yield _gauge(_LAST_ROUND_TRIP, {(): store.last_round_trip})

    def _counters(self) -> Iterator[Metric]:
        """All counters: what is new and in no table still shows."""
        values: dict[Family, dict[Labels, int]] = {family: {} for family, _ in _COUNTED}
        values |= {family: {} for family in (*(one for _, one in _PREFIXES), _EVENTS)}
        counters = self._counts
        for name in dict.fromkeys((*_BY_COUNTER, *_SHOWN_AT_ZERO, *counters)):
            family, labels = _place_of(name)
            values[family][labels] = values[family].get(labels, 0) + counters[name]
        return (_counter(family, by_labels) for family, by_labels in values.items())


def _place_of(counter: str) -> tuple[Family, Labels]:
    known = _BY_COUNTER.get(counter)
    if known is not None:
        return known
    for prefix, family in _PREFIXES:
        if counter.startswith(prefix):
            return family, tuple(counter.removeprefix(prefix).split(".", len(family.labels) - 1))
    return _EVENTS, (counter,)


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
