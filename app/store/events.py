"""The ports of the event log: what is appended and read, and the catalogue of generations.

A database has shards; within one there is a total order, the same for all readers and nodes. Calls raise
DatabaseNotFoundError where there is no such database, and StoreUnavailableError when the log does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.core.errors import EventLogError
from app.core.events.batches import BatchId, CallId
from app.core.events.event import Database, Entry, Event, Position, Shard
from app.core.events.generation import ColdFile, Generation
from app.core.events.reading import ForgottenSpan, Picked, Reading, Slice
from app.core.events.transaction import Transaction
from app.runtime.telemetry import Fill
from app.store.lifetime import Lifetime
from app.store.named_cursors import CursorStore


class ArchivedError(EventLogError):
    """The events to be read are in the cold tier, at least up to this position of the shard, or were dropped.

    `forgotten` is what the shard has forgotten before they came there.
    """

    def __init__(self, until: Position, forgotten: Sequence[ForgottenSpan] = ()) -> None:
        super().__init__(f"the events up to position {until} are in the cold tier")
        self.until = until
        self.forgotten = forgotten


class EventLog(Lifetime, Protocol):
    """Appends events and gives them back. One object serves all databases."""

    def fills(self) -> dict[str, Fill]:
        """The fills of the log's own queues."""

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | CallId | None = None
    ) -> Position:
        """Put 1 to MAX_ENTRIES entries behind all others, in this order; they are durable when it returns.

        Returns the position of the last one; those before have the numbers before. QuotaError as `allow` says.
        FencedError when there is an epoch, and somebody has appended to the shard with a later one. An append that
        failed otherwise may have happened, and may be repeated: as the same `batch` it is then in once, while the shard
        knows its writer, or for two minutes a call; without one it is in twice. Each value becomes the last one of its
        topic; an empty one deletes it.
        """

    async def claim(self, database: str, call: CallId) -> None:
        """For two minutes the key of this call stands for it; CallMismatchError while it stands for another one.

        That is to tell callers of their mistakes: a process that keeps its log itself forgets it when it ends.
        """

    async def commit(self, transaction: Transaction) -> Position:
        """`append` if all conditions hold, else ValueChangedError and nothing is written."""

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        """At most `limit` events that are durable, in order. What is in a damaged generation is left out.

        ArchivedError where some of what is asked for, or all of the generation that is named, is not here any more.
        """

    async def wait(self, database: str, after: Sequence[Position]) -> Sequence[Position]:
        """Return the heads of the shards, in the order of their numbers, as soon as one is after its position.

        Where one of several servers is away, the heads of its shards are given as these positions.
        """

    async def value(self, shard: Shard, topic: str) -> Event | None:
        """The last value of a topic."""

    async def values(self, shard: Shard, topic_filter: str, after: str, limit: int) -> Sequence[Event]:
        """Last values whose topics fit the filter and come after this one, in the order of the topics' bytes."""

    async def structures(self, database: str) -> Sequence[str]:
        """The structures of topics, taught and learned, in alphabetical order."""


class Generations(Protocol):
    """The catalogue: it says what exists."""

    async def generations(self, database: str) -> Sequence[Generation]:
        """Return the generations of a database, the oldest first; the last one is the current one."""

    async def rotate(self, database: str, expected: int) -> None:
        """Begin a new generation; nothing happens when `expected` is not the current one any more."""

    async def cool(self, database: str, number: int, files: Sequence[ColdFile]) -> None:
        """From now on a sealed generation is in these files and nowhere else; its events are forgotten here.

        For one that is cold already its files are replaced. Nothing happens when there is none, or it is current or
        damaged. May be repeated after it failed: shards change one by one, and each of them at once.
        """

    async def allow(self, database: str, room: int | None) -> None:
        """From now on each shard takes so many bytes more, as quotas count them; None: as many as come.

        When they are used up, or a call has gone beyond, what comes is refused with QuotaError, on all nodes, but for
        calls that only delete last values.
        """

    async def drop(self, database: str, number: int) -> None:
        """Forget a generation that is not current, with all its events; nothing happens when there is none.

        Last values stay.
        """


class Pickable(Protocol):
    """Reads events by where they are."""

    async def pick(self, shard: Shard, positions: Sequence[Position]) -> Picked:
        """The durable events at 1 to MOST_PICKED positions, in whatever order these are."""


class EventStore(EventLog, Pickable, Generations, Protocol):
    """All that an engine offers for events."""

    @property
    def cursors(self) -> CursorStore:
        """The store of how far readers have come."""

    @property
    def databases(self) -> Sequence[Database]:
        """The databases that the log was opened with."""
