"""The latest commands that have failed, for those who ask what is going wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from app.callbacks.observer import Observer
from app.callbacks.pending import Pending
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome

MOST: Final = 500
FAILED: Final = frozenset({CommandState.FAILED, CommandState.TIMED_OUT, CommandState.UNSENT})
"""The outcomes that nobody wanted."""


class Failure(NamedTuple):
    """A command that has failed at an instant, in microseconds on the store's clock."""

    at: int
    command_id: str


class Failures(Observer):
    """Remembers so many in memory; a plain command costs a look at its state."""

    def __init__(self) -> None:
        self._latest: deque[Failure] = deque(maxlen=MOST)

    def closed(self, pending: Pending) -> None:
        """A command of this node has its outcome."""
        if pending.state in FAILED:
            self._latest.append(Failure(pending.finished_us, pending.command_id))

    def foreign(self, outcome: Outcome) -> None:
        """This node ended a command of another node, or one that was not sent."""
        if outcome.state in FAILED:
            self._latest.append(Failure(outcome.finished_at, outcome.command_id))

    def since(self, at: int, most: int) -> Sequence[Failure]:
        """The latest `most` of those that failed at that instant or later, newest first."""
        latest = reversed(self._latest)
        return [one for one, _ in zip((one for one in latest if one.at >= at), range(most), strict=False)]
