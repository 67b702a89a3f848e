"""Appends what callers publish, within the quotas of databases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.core.events.batches import CallId
from app.core.events.event import Entry, Position, Shard, validate_entry
from app.core.events.plan import Plan
from app.core.events.quota import is_bounded
from app.core.events.transaction import Transaction, ValueCondition
from app.events.gate import LogGate, call_budget
from app.events.keeper import Keeper
from app.events.reader import EventsReader
from app.events.spans import EventSpans
from app.events.values import LastValues
from app.store.events import EventLog


class EventPublisher:
    """Calls raise DatabaseNotFoundError, QuotaError, and StoreUnavailableError, also while the log is not open."""

    def __init__(
        self,
        *,
        log: EventLog,
        plan: Plan,
        reader: EventsReader,
        values: LastValues,
        keeper: Keeper,
        gate: LogGate,
        spans: EventSpans,
    ) -> None:
        self._log = log
        self._plan = plan
        self._reader = reader
        self._values = values
        self._keeper = keeper
        self._gate = gate
        self._spans = spans

    async def publish(self, database: str, entries: Iterable[Entry], call: CallId | None = None) -> list[Position]:
        """Append what a backend says, in its order, and return the positions.

        All entries of one shard are appended together; when one fails, those of other shards may be there. Repeated
        as the same `call` within two minutes, all are there once. CallMismatchError: nothing was appended, as its key
        stands for another call.
        """
        self._gate.check()
        about = self._reader.database(database)
        given = [validate_entry(entry) for entry in entries]
        if call is None:  # a call that is known gets its answer from a full log, too, which refuses what is new
            self._admit(database, given)
        shards: dict[Shard, list[int]] = {}
        for number, entry in enumerate(given):
            shards.setdefault(about.shard(entry.device or entry.topic), []).append(number)
        positions = [0] * len(given)
        async with call_budget():
            if call is not None:
                await self._log.claim(database, call)
            for shard, numbers in shards.items():
                part = [given[number] for number in numbers]
                with self._spans.append(shard, part):
                    last = await self._log.append(shard, part, batch=call)
                for place, number in enumerate(reversed(numbers)):
                    positions[number] = last - place
        return positions

    async def commit(self, transaction: Transaction) -> Position:
        """See `EventLog.commit`."""
        self._gate.check()
        self._reader.database(transaction.shard.database)
        for entry in transaction.entries:
            validate_entry(entry)
        self._admit(transaction.shard.database, transaction.entries)
        async with call_budget():
            with self._spans.append(transaction.shard, transaction.entries):
                return await self._log.commit(transaction)

    async def put_value(self, database: str, entry: Entry, conditions: Sequence[ValueCondition]) -> Position:
        """Make it the last value if the conditions hold, which are about its topic; ValueChangedError."""
        self._gate.check()
        there = await self._values.value(database, entry.topic)
        shard = self._plan.shard(database, entry.topic) if there is None else Shard(database, there.shard)
        return await self.commit(Transaction(shard, tuple(conditions), (entry,)))

    def _admit(self, database: str, entries: Sequence[Entry]) -> None:
        """QuotaError while the database is full, but for what only deletes last values."""
        if is_bounded(entries):
            self._keeper.admit(database)
