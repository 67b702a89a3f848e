"""What a wake-up on a node's channel says.

Written by the store's scripts, read by the cluster. Fields are joined by NUL, which neither ids nor JSON texts contain:
command id, state, finished_at (µs), receiving node, result, error; an empty field is None. Where the whole would exceed
`INLINE_MAX` bytes, only the command id is sent and the reader asks the store (failure mode F22).
"""

from __future__ import annotations

from app.core.command import CommandState
from app.core.routing import Outcome

INLINE_MAX = 4096


def decode_wake_up(data: bytes) -> tuple[str, Outcome | None]:
    """The command id and, where it was sent along, the outcome. ValueError when this is not a wake-up."""
    fields = data.split(b"\0")
    command_id = fields[0].decode("ascii")
    if len(fields) == 1:
        return command_id, None
    _, state, finished_at, received_by, result, error = fields
    outcome = Outcome(
        command_id,
        CommandState(state.decode("ascii")),
        int(finished_at),
        received_by.decode("ascii") or None,
        result or None,
        error or None,
    )
    return command_id, outcome
