"""What an idempotency key stands for, where a call shows that its caller believes otherwise."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from app.commands.send.registrar import CommandRequest
from app.core.commands.command import Command
from app.core.errors import CommandError, IdempotencyMismatchError, UnavailableError
from app.core.profiles.profile import to_json
from app.store.commands import CommandReader


async def naming_the_difference(
    error: IdempotencyMismatchError, asked: CommandRequest, store: CommandReader, may_read: Callable[[Command], bool]
) -> IdempotencyMismatchError:
    """The error with what differs, for a caller who may read the command that the key stands for."""
    with suppress(CommandError, UnavailableError):
        known = await store.read(error.command_id)
        if may_read(known):
            return IdempotencyMismatchError(error.command_id, _difference(asked, known))
    return error


def _difference(asked: CommandRequest, known: Command) -> str:
    parts = {
        "method": asked.method != known.method,
        "params": to_json(asked.params) != known.params,
        "profile": asked.profile != known.profile,
    }
    named = [name for name, differs in parts.items() if differs]
    return " and ".join(named) if named else "timeout, one_way, if_offline or notify"
