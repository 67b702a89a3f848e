"""The observers of commands: metrics, the latency log, traces, notes for explanations, and watchers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.callbacks.observer import Observer, Observers
from app.commands.follow.stream import CommandStream
from app.commands.follow.watches import Watches
from app.commands.held.waiting_devices import WaitingDevices
from app.events.spans import UNTRACED, EventSpans
from app.kernel import Kernel
from app.latency.factory import open_log
from app.latency.log import LatencyLog
from app.observers.drops import Drops
from app.observers.failures import Failures
from app.observers.journal import Journal
from app.observers.measures import CommandMeasures
from app.observers.notes import Notes
from app.observers.recent import RecentCommands
from app.plane import Plane
from app.runtime.services import Service
from app.runtime.telemetry import BurstLog

if TYPE_CHECKING:
    from app.observers.spans import Spans
    from app.runtime.tracing import Tracing  # whose library is an extra


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The observers of commands, and those of them that others ask as well."""

    observers: Observers
    measures: CommandMeasures
    notes: Notes
    failures: Failures
    recent: RecentCommands
    waiting: WaitingDevices
    watches: Watches
    command_stream: CommandStream
    log: LatencyLog | None
    journal: Journal | None
    spans: Spans | None
    plane: Plane


def open_observers(kernel: Kernel, observers: Sequence[Observer]) -> Observed:
    """Put them together; `observers` are those of other planes. Nothing is connected yet."""
    node_id, clock, counters = kernel.info.node_id, kernel.clock, kernel.counters
    measures = CommandMeasures(kernel.languages.profiles, node_id, counters, kernel.adapters.store_measures)
    log = _latency_log(kernel)
    journal = None if log is None else _journal(kernel, log)
    spans = None if kernel.tracing is None else _spans(kernel.tracing, kernel)
    watches = Watches(kernel.store, node_id, interval=kernel.interval)
    kernel.channel.wake.add(lambda command_id, _outcome: watches.hear(command_id))
    kernel.channel.watched.add(watches.hear)
    notes, failures = Notes(node_id, clock), Failures()
    waiting = WaitingDevices(clock, kernel.settings.command.hold_rate)
    recent = RecentCommands(clock)
    stream = CommandStream(
        kernel.store.changes, kernel.store, counters, always=kernel.settings.command.events == "always"
    )
    listening = (*observers, notes, failures, recent, measures, watches, waiting, Drops(BurstLog(counters, clock)))
    return Observed(
        observers=Observers(counters, [one for one in (*listening, spans, journal) if one is not None]),
        measures=measures,
        notes=notes,
        failures=failures,
        recent=recent,
        waiting=waiting,
        watches=watches,
        command_stream=stream,
        log=log,
        journal=journal,
        spans=spans,
        plane=Plane(
            name="observers",
            services=[
                *_life_of(journal),
                Service("watches", watches.run, fills=watches.fills),
                Service("feed", stream.run),
            ],
        ),
    )


def _life_of(journal: Journal | None) -> Sequence[Service]:
    return [] if journal is None else [Service("journal", journal.run, close=journal.close, fills=journal.fills)]


def _spans(tracing: Tracing, kernel: Kernel) -> Spans:
    from app.observers.spans import Spans

    return Spans(tracing, kernel.clock)


def event_spans(kernel: Kernel) -> EventSpans:
    """The tracer of appends to the event log, if anything is traced."""
    if kernel.tracing is None:
        return UNTRACED
    from app.observers.event_spans import LogSpans

    return LogSpans(kernel.tracing)


def _latency_log(kernel: Kernel) -> LatencyLog | None:
    return open_log(
        kernel.settings.latency,
        node_id=kernel.info.node_id,
        incarnation=kernel.info.incarnation,
        clock=kernel.clock,
        store_now=kernel.store.now,
        counters=kernel.counters,
    )


def _journal(kernel: Kernel, log: LatencyLog) -> Journal:
    cluster = kernel.cluster

    def gone(node_id: str) -> bool:
        return cluster.leased is not None and node_id not in cluster.leased

    news = kernel.interval + 1  # the members are read with each sweep
    return Journal(
        log=log,
        store=kernel.store,
        clock=kernel.clock,
        node_id=kernel.info.node_id,
        gone=gone,
        patience=kernel.settings.cluster.lease.total_seconds() + news,
        news=news,
        counters=kernel.counters,
    )
