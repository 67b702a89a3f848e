"""Spans around what is appended to the event log. Only where tracing is on (app/main.py)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from app.core.events.event import Entry, Shard, size_of
from app.runtime.tracing import CLIENT, CONSUMER, Attributes, OpenSpan, Tracing


class LogSpans:
    """`EventSpans` of app/events/spans.py."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def batch(self, shard: Shard, entries: Sequence[Entry]) -> AbstractContextManager[OpenSpan]:
        """A trace of its own: whoever put the first event in has no part in the others."""
        return self._tracing.span("events batch", CONSUMER, "", _about(shard, entries))

    def append(self, shard: Shard, entries: Sequence[Entry]) -> AbstractContextManager[OpenSpan]:
        """One call of the log, of the intake or of a backend."""
        return self._tracing.span("events append", CLIENT, None, _about(shard, entries))


def _about(shard: Shard, entries: Sequence[Entry]) -> Attributes:
    return {
        "homing.database": shard.database,
        "homing.shard": shard.number,
        "homing.count": len(entries),
        "homing.bytes": sum(map(size_of, entries)),
    }
