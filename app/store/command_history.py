"""The history of a command: the port for those who follow it while it happens."""

from __future__ import annotations

from typing import Final, Protocol

from app.core.commands.history import Account

MOST_WATCHING: Final = 8
"""The number of nodes that are woken for the progress of one command; of more, the latest ones."""


class CommandHistory(Protocol):
    """Errors are those of `CommandReader`."""

    async def follow(self, command_id: str, after: int = 0, watcher: str | None = None) -> Account:
        """The command with those of its reports whose number is greater than `after`, read in one step.

        With `watcher`, this node is told from now on of each report, of the outcome, and of a late response; by hints
        that may be lost, so it reads now and then. Of more than MOST_WATCHING nodes the latest are told of reports.
        CommandNotFoundError; UnreadableRecordError.
        """
