"""The commands of the last hour in numbers, for those who look at the cluster and have no Prometheus."""

from __future__ import annotations

from typing import Any, Final

from app.callbacks.observer import Observer
from app.callbacks.pending import Pending
from app.core.clock import Clock
from app.core.commands.callback import Registration
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome
from app.core.last_hour import MINUTES, CommandTally, LastHour, MethodName, busiest

MOST_METHODS: Final = 200
"""The number of methods that are counted by themselves in five minutes; the others count among all."""
MOST_TOLD: Final = 50
PART: Final = 5
"""The minutes in which methods are counted together."""
_MICROSECONDS: Final = 1_000_000


class RecentCommands(Observer):
    """Counts by the minute of this node's clock, in some hundred kilobytes at most."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minutes: dict[int, CommandTally] = {}
        self._parts: dict[int, dict[MethodName, CommandTally]] = {}

    def registered(self, registration: Registration, opened_at: float) -> None:
        """The store has a new command of this node."""
        self._tally(self._minute()).begun += 1

    def closed(self, pending: Pending) -> None:
        """A command of this node has its outcome. How long one took that an earlier start began is not known."""
        minute = self._minute()
        known = pending.closed_at is not None and pending.registered_at is not None
        end = pending.closed_at if pending.delivered_at is None else pending.delivered_at
        seconds = end - pending.opened_at if known and end is not None else None
        timeout = (pending.deadline_us - pending.created_us) / _MICROSECONDS
        state = pending.state.value
        self._tally(minute).end(state, seconds, timeout)
        part = self._part(minute // PART)
        method = MethodName(pending.profile, pending.method)
        tally = part.get(method)
        if tally is None:
            if len(part) >= MOST_METHODS:
                return
            tally = part[method] = CommandTally()
        tally.end(state, seconds, timeout)

    def foreign(self, outcome: Outcome) -> None:
        """This node ended a command of another node, or one that was not sent. What was cancelled its home counts."""
        if outcome.state is not CommandState.CANCELLED:
            self._tally(self._minute()).end(outcome.state.value, None, 0.0)

    def read(self) -> LastHour:
        """The last hour; methods of a few minutes more, and those with most commands."""
        minute = self._minute()
        minutes = {at: one for at, one in self._minutes.items() if minute - MINUTES < at <= minute}
        parts = (part for at, part in self._parts.items() if minute - MINUTES - PART < at * PART <= minute)
        return LastHour(minutes, busiest(parts, MOST_TOLD))

    def _minute(self) -> int:
        return int(self._clock.wall() // 60)

    def _tally(self, minute: int) -> CommandTally:
        found = self._minutes.get(minute)
        if found is None:
            _forget(self._minutes, MINUTES)
            found = self._minutes[minute] = CommandTally()
        return found

    def _part(self, number: int) -> dict[MethodName, CommandTally]:
        found = self._parts.get(number)
        if found is None:
            _forget(self._parts, MINUTES // PART + 1)
            found = self._parts[number] = {}
        return found


def _forget(kept: dict[int, Any], most: int) -> None:
    """Make room for one more; a clock that was set back makes no difference."""
    while len(kept) >= most:
        del kept[next(iter(kept))]
