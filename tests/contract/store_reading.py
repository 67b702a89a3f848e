"""Looking at a state store."""

from __future__ import annotations

from datetime import timedelta

from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome
from app.core.identifiers import PARTITIONS
from app.store.state import StateStore

ALL_PARTITIONS = range(PARTITIONS)
NO_GRACE = timedelta()
LATE_ENDS = [CommandState.TIMED_OUT, CommandState.CANCELLED, CommandState.UNSENT]
ENDS = [*LATE_ENDS, CommandState.SUCCEEDED]


async def the_only(store: StateStore, command_id: str) -> object:
    (command,) = await store.get([command_id])
    return command


async def state_of(store: StateStore, command_id: str) -> CommandState | None:
    (command,) = await store.get([command_id])
    return command.state if command is not None else None


async def swept(store: StateStore) -> list[Outcome]:
    return await store.sweep(ALL_PARTITIONS, "sweeper", NO_GRACE)
