"""The callers that are parked on this node until their command has an outcome."""

from __future__ import annotations

import asyncio

from app.callbacks.observer import Observers
from app.callbacks.pending import Pending
from app.core.clock import Clock
from app.core.commands.routing import Outcome
from app.core.errors import CapacityError
from app.runtime.telemetry import Fill


class Waiter:
    """A caller parked on this node until its command has an outcome."""

    __slots__ = ("closed", "future", "parked_at")

    def __init__(self, parked_at: float, loop: asyncio.AbstractEventLoop) -> None:
        self.parked_at = parked_at
        self.closed: Pending | None = None
        """The command with its outcome, until this caller has been handed it."""
        self.future: asyncio.Future[Outcome | None] = loop.create_future()

    def give_up(self) -> None:
        """End the wait without an outcome."""
        if not self.future.done():
            self.future.set_result(None)


class Waiters:
    """Holds the parked callers of all commands, whose home may be another node; at most `most`. Nothing here awaits."""

    def __init__(self, clock: Clock, observers: Observers, *, most: int) -> None:
        self._clock = clock
        self._observers = observers
        self._most = most
        self._waiters: dict[str, list[Waiter]] = {}
        self._parked = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return self._parked

    def __contains__(self, command_id: str) -> bool:
        return command_id in self._waiters

    def fills(self) -> dict[str, Fill]:
        """Return how full the places are."""
        return {"waiters": Fill(self._parked, self._most)}

    def check_room(self) -> None:
        """CapacityError when too many callers are parked."""
        if self._parked >= self._most:
            raise CapacityError(f"{self._most} callers wait on this node already (HOMING_COMMAND_MAX_WAITERS)")

    def park(self, command_id: str) -> Waiter:
        """Put a waiter in place; CapacityError when too many callers are parked."""
        self.check_room()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        waiter = Waiter(self._clock.monotonic(), self._loop)
        self._waiters.setdefault(command_id, []).append(waiter)
        self._parked += 1
        return waiter

    def leave(self, command_id: str, waiter: Waiter) -> None:
        """Take a waiter away, whether it was completed or not."""
        if waiter.closed is not None:  # its caller went away in the moment in which the outcome came
            for tell in self._observers.closed:
                tell(waiter.closed)
            waiter.closed = None
        waiters = self._waiters.get(command_id)
        if waiters is None or waiter not in waiters:
            return
        waiters.remove(waiter)
        self._parked -= 1
        if not waiters:
            del self._waiters[command_id]

    def wake(self, outcome: Outcome, closed: Pending | None) -> bool:
        """Wake all callers of a command; whether there were any. `closed` is the command, where it was open here.

        The first of them brings the news that it is closed once it was handed the outcome; without callers that is now.
        """
        waiters = self._waiters.pop(outcome.command_id, ())
        for waiter in waiters:
            self._parked -= 1
            if not waiter.future.done():
                waiter.closed, closed = closed, None
                waiter.future.set_result(outcome)
        if closed is not None:
            for tell in self._observers.closed:
                tell(closed)
        return bool(waiters)

    def give_up(self, command_id: str) -> None:
        """Send all callers of a command away without an outcome."""
        for waiter in self._waiters.get(command_id, ()):
            waiter.give_up()

    def delivered(self, waiter: Waiter) -> None:
        """Note that a parked caller was handed the outcome."""
        if waiter.closed is not None:
            closed, waiter.closed = waiter.closed, None
            closed.delivered_at = self._clock.monotonic()
            for tell in self._observers.closed:
                tell(closed)

    def parked_before(self, instant: float) -> list[str]:
        """Commands with a caller parked since before `instant`."""
        return [command_id for command_id, waiters in self._waiters.items() if waiters[0].parked_at <= instant]
