"""Values in Redis that this node cannot read, of a later version or damaged, are left alone, counted and named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.core.clock import Clock
from app.core.commands.command import Command
from app.core.commands.routing import Outcome
from app.core.errors import UnreadableRecordError
from app.runtime.telemetry import BurstLog
from app.store.redis.commands import records


class Unreadable:
    """Counts as `drop.unreadable_record`, and logs once per burst."""

    def __init__(self, counters: Counter[str], clock: Clock) -> None:
        self._burst = BurstLog(counters, clock)

    def skipped(self, error: UnreadableRecordError) -> UnreadableRecordError:
        """Count and name it."""
        self._burst.drop("unreadable_record", command_id=error.command_id, why=error.reason)
        return error

    def member(self, member: str) -> None:
        """Count and name a member of a list."""
        self._burst.drop("unreadable_record", member=member)

    def checked(self, command_id: str, fields: records.Fields) -> Command:
        """The command of a record; UnreadableRecordError, counted."""
        try:
            return records.command(command_id, fields)
        except UnreadableRecordError as error:
            raise self.skipped(error) from None

    def told(self, command_id: str, fields: Sequence[bytes]) -> Outcome:
        """The outcome that a script replied; UnreadableRecordError, counted."""
        try:
            return records.outcome(command_id, fields)
        except UnreadableRecordError as error:
            raise self.skipped(error) from None
