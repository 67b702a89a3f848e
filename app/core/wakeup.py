"""What a wake-up on a node's channel says.

Written by the store's scripts, read by the cluster. Fields are joined by NUL, which neither ids nor JSON texts contain:
command id, state, finished_at (µs), receiving node (app/core/reception.py), result, error; an empty field is None;
and, of a traced command, the context of its trace (W3C traceparent).
Where the whole would exceed `INLINE_MAX` bytes, only the command id is sent and the reader asks the store (failure mode
F22).
"""

from __future__ import annotations

from app.core.command import CommandState
from app.core.reception import decode_receiver
from app.core.routing import Outcome

INLINE_MAX = 4096


def decode_wake_up(data: bytes) -> tuple[str, Outcome | None]:
    """The command id and, where it was sent along, the outcome. ValueError when this is not a wake-up."""
    fields = data.split(b"\0")
    command_id = fields[0].decode("ascii")
    if len(fields) == 1:
        return command_id, None
    _, state, finished_at, received_by, result, error, *trace = fields
    if len(trace) > 1:
        raise ValueError("more fields than a wake-up has")
    receiver, reception = decode_receiver(received_by)
    outcome = Outcome(
        command_id,
        CommandState(state.decode("ascii")),
        int(finished_at),
        receiver,
        result or None,
        error or None,
        reception,
        trace[0].decode("ascii") if trace else None,
    )
    return command_id, outcome
