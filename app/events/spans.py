"""The observer's port for appends where they are traced; elsewhere nothing listens (app/observers/event_spans.py)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from app.core.events.event import Entry, Shard


class EventSpans(Protocol):
    """Spans around the work of `with`."""

    def batch(self, shard: Shard, entries: Sequence[Entry]) -> AbstractContextManager[object]:
        """Trace a batch of the intake until it is in the log, however often that is tried."""

    def append(self, shard: Shard, entries: Sequence[Entry]) -> AbstractContextManager[object]:
        """One call of the log. It belongs to what is going on, or begins a trace."""


class Untraced:
    """None."""

    def batch(self, _shard: Shard, _entries: Sequence[Entry]) -> AbstractContextManager[object]:
        """See EventSpans."""
        return _NOTHING

    def append(self, _shard: Shard, _entries: Sequence[Entry]) -> AbstractContextManager[object]:
        """See EventSpans."""
        return _NOTHING


_NOTHING: Final = nullcontext()
UNTRACED: Final = Untraced()
