"""The history of a command, in order: the reports of its progress, its outcome, what a probe found, a late response.

Each has a number. The reports are counted from 1 as the store takes them, and the outcome is the next one. Then comes
what a probe found of a command that had timed out, and then a late response, where there are such. 0 is the command as
a reader first saw it. So an outcome costs nothing to keep: the record has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from app.core.commands.command import Command, CommandState

MOST_REPORTS: Final = 200
"""The most reports of a command that are kept; lua/commands/respond.lua has it, too."""
EDGE: Final = 50
"""The number of the first and of the latest reports that are kept as they are; the others between them are thinned."""
MOST_REPORT_BYTES: Final = 8192
"""A longer report is counted, and is kept only as long as it is the latest."""
LATE_STATES: Final = frozenset({CommandState.TIMED_OUT, CommandState.CANCELLED, CommandState.UNSENT})
"""After these a response is still news, and is annexed."""

_One = TypeVar("_One")


@dataclass(frozen=True, slots=True)
class Report:
    """Progress, as the device reported it. `at` is in microseconds since the epoch on the store's clock.

    `progress` is a JSON text, or None where there is none or where it was too long to be kept.
    """

    number: int
    at: int
    progress: bytes | None


@dataclass(frozen=True, slots=True)
class Account:
    """A command as it stands, and the reports that a reader had not seen. `count` is how many there were in all."""

    command: Command
    count: int
    reports: Sequence[Report]

    @property
    def last(self) -> int:
        """The number of the latest thing that has happened; 0 when nothing has."""
        return self.late_number - (self.command.late is None) - (self.command.finished_at is None)

    @property
    def late_number(self) -> int:
        """The number of a late response: no probe looks for a command that was answered, so it is the last one."""
        return self.count + 2 + (self.command.verified is not None)

    @property
    def complete(self) -> bool:
        """True if nothing can happen to it any more."""
        command = self.command
        return command.state.final and (command.late is not None or not takes_late(command))


def takes_late(command: Command) -> bool:
    """True if a response after the outcome is still news, as none has made it."""
    return command.state in LATE_STATES or command.confirmed_by is not None


def thinned(reports: Sequence[_One]) -> list[_One]:
    """Every other one of those between the edges."""
    return [*reports[:EDGE], *reports[EDGE:-EDGE:2], *reports[-EDGE:]]
