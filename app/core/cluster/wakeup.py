"""The content of a wake-up on a node's channel.

Written by the store's scripts, read by the cluster. Fields are joined by NUL, which neither ids nor JSON texts contain:
command id, state, finished_at (µs), receiving node (app/core/commands/reception.py), result, error; an empty field is
None. A seventh has words with a blank between: the context of the command's trace (W3C traceparent) or `-`, the version
of its record, and its token (app/core/cluster/wakekey.py). Scripts of 0.1.0 write no words but the trace, and readers
of 0.1.0 take the seventh field as it is and refuse an eighth: whatever is added is another word (app/core/versions.py).

Where the whole would exceed `INLINE_MAX` bytes, only the command id is sent and the reader asks the store: Redis cuts
off a node that leaves too many bytes unread.
"""

from __future__ import annotations

from typing import Final

from app.core.commands.command import CommandState
from app.core.commands.reception import decode_receiver
from app.core.commands.routing import Outcome

INLINE_MAX: Final = 4096
NO_TRACE: Final = "-"
WATCHED: Final = b"\0watch "
"""The bytes in front of the id of a command to which something has happened, for nodes that watch it: a hint, and no
wake-up."""


def decode_wake_up(data: bytes) -> tuple[str, Outcome | None]:
    """The command id and, where it was sent along and can be read, the outcome. ValueError when this is no wake-up."""
    command_id, *fields = data.split(b"\0")
    return command_id.decode("ascii"), _outcome(command_id.decode("ascii"), fields) if fields else None


def _outcome(command_id: str, fields: list[bytes]) -> Outcome | None:
    state, finished_at, received_by, result, error, *rest = fields
    trace, _version, token, *_ = (*rest[0].decode("ascii").split(" "), "", "") if rest else ("", "", "")
    try:
        known = CommandState(state.decode("ascii"))
    except ValueError:
        return None  # of a later version, which is asked for in the store
    receiver, reception = decode_receiver(received_by)
    return Outcome(
        command_id,
        known,
        int(finished_at),
        receiver,
        result or None,
        error or None,
        reception,
        None if trace in ("", NO_TRACE) else trace,
        token=token,
    )
