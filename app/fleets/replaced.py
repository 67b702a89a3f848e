"""Ends the commands in whose place a schedule begins others.

In a lane that stops at failures, what was sent is left to end by itself: its cancellation would stop the lane, and what
comes in its place would wait there for a person (docs/adr/0188).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app.core.commands.command import Command, CommandState
from app.core.errors import CommandNotFoundError, IllegalTransitionError
from app.store.commands import CommandReader, Finished


class CommandCanceller(Protocol):
    """The way to cancel commands."""

    async def __call__(self, identity: str, *, only_held: bool = False) -> Finished:
        """Cancel one. With `only_held`, IllegalTransitionError where it is not held any more."""


class ReplacedCommands:
    """The commands that give way to others."""

    def __init__(self, commands: CommandReader, cancel: CommandCanceller) -> None:
        self._commands = commands
        self._cancel = cancel

    async def end(self, command_id: str, check: Callable[[Command], None] = lambda _command: None) -> None:
        """Cancel a command, unless it has ended or is spared. `check` is told of it before, and may raise."""
        (command,) = await self._commands.get([command_id])
        if command is None or command.state.final:
            return
        stops = command.lane is not None and command.lane.stops
        if stops and command.state is not CommandState.HELD:
            return
        check(command)
        try:
            await self._cancel(command_id, only_held=stops)
        except (CommandNotFoundError, IllegalTransitionError):  # it has ended or left meanwhile
            return
