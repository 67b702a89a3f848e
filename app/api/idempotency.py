"""Idempotency keys, and the commands that they stand for, where a call shows that its caller believes otherwise."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import orjson

from app.commands.send.registrar import CommandRequest
from app.core.commands.command import Command
from app.core.errors import CommandError, IdempotencyMismatchError, UnavailableError
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
        "params": orjson.dumps(asked.params) != orjson.dumps(orjson.loads(known.params)),  # 0.2.0 writes 1e16 as 1e+16
        "profile": asked.profile != known.profile,
    }
    named = [name for name, differs in parts.items() if differs]
    return " and ".join(named) if named else "timeout, one_way, if_offline or notify"
