"""Messages that nodes send on each other's channels: wake-ups, hints, canaries that came in elsewhere, questions."""

from __future__ import annotations

from typing import Final

from app.cluster.wakeups import ChannelHandlers
from app.core.cluster.wakeup import WATCHED, decode_wake_up
from app.runtime.telemetry import Counters

_CARRIED: Final = b"\0canary "
"""The bytes in front of the secret of a canary that came in at another node; a wake-up never begins with NUL."""


_NOTE: Final = b"\0note "
"""The bytes in front of questions between nodes, and of their answers."""


def note(what: bytes) -> bytes:
    """The message that carries a question or an answer."""
    return _NOTE + what


def carried(secret: str) -> bytes:
    """The message that tells a node that a canary of it has come in."""
    return _CARRIED + secret.encode("ascii")


class ChannelReader:
    """Tells `handlers` what was heard; what is neither is counted."""

    def __init__(self, handlers: ChannelHandlers, counters: Counters) -> None:
        self._handlers = handlers
        self._counters = counters

    def read(self, data: bytes) -> None:
        """Take one message of our channel."""
        if data.startswith(_CARRIED):
            self._handlers.carried(data.removeprefix(_CARRIED).decode("ascii", "replace"))
            return
        if data.startswith(_NOTE):
            self._handlers.noted(data.removeprefix(_NOTE))
            return
        if data.startswith(WATCHED):
            self._handlers.watched(data.removeprefix(WATCHED).decode("ascii", "replace"))
            return
        try:
            command_id, outcome = decode_wake_up(data)
        except ValueError:
            self._counters["drop.bad_wake_up"] += 1
            return
        self._handlers.wake(command_id, outcome)
