"""What is open on this node: commands whose home it is, and the callers parked on it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from app.callbacks.pending import Pending
from app.core.clock import Clock
from app.core.command import Command
from app.core.errors import CapacityError
from app.core.routing import Outcome
from app.observability import Fill


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


class Registry:
    """Holds the open commands and the parked callers, both bounded. Nothing here awaits.

    `on_closed` gets each command of this node with its outcome, once, after a parked caller was handed it; `on_foreign`
    the outcomes that this node made of commands that are not open here.
    """

    def __init__(self, clock: Clock, *, max_pending: int, max_waiters: int) -> None:
        self.on_closed: Callable[[Pending], None] | None = None
        self.on_foreign: Callable[[Outcome], None] | None = None
        self._clock = clock
        self._max_pending = max_pending
        self._max_waiters = max_waiters
        self._pending: dict[str, Pending] = {}
        self._waiters: dict[str, list[Waiter]] = {}
        self._parked = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unmarked: deque[tuple[float, str]] = deque()

    @property
    def pending_count(self) -> int:
        """Open commands whose home is this node."""
        return len(self._pending)

    @property
    def waiter_count(self) -> int:
        """Callers parked on this node."""
        return self._parked

    def queues(self) -> dict[str, Fill]:
        """How full both are."""
        return {
            "pending": Fill(self.pending_count, self._max_pending),
            "waiters": Fill(self.waiter_count, self._max_waiters),
        }

    def open(self, command_id: str) -> None:
        """Note a new command before anything is sent; CapacityError when the node has too many."""
        if len(self._pending) >= self._max_pending:
            raise CapacityError(f"this node has {self._max_pending} open commands already (HOMING_COMMAND_MAX_PENDING)")
        now = self._clock.monotonic()
        self._pending[command_id] = Pending(now)
        self._unmarked.append((now, command_id))

    def reopen(self, command: Command) -> None:
        """Note a command that an earlier incarnation of this node left open; not one to refuse for lack of room."""
        self._pending.setdefault(command.id, Pending(self._clock.monotonic(), command))

    def discard(self, command_id: str) -> None:
        """Forget a command that was never registered."""
        self._pending.pop(command_id, None)

    def is_open(self, command_id: str) -> bool:
        """Whether this is an open command of this node."""
        return command_id in self._pending

    def registered(self, command: Command) -> None:
        """Note that the store has the command."""
        if (pending := self._pending.get(command.id)) is not None:
            pending.about(command)
            pending.registered_at = self._clock.monotonic()

    def joined(self, command_id: str) -> None:
        """Note that a further call means the command."""
        if (pending := self._pending.get(command_id)) is not None:
            pending.attempt += 1

    def published(self, command_id: str, size: int) -> None:
        """Note that the command was handed over to the broker's connection; `size` of its payload in bytes."""
        if (pending := self._pending.get(command_id)) is not None:
            pending.published_at = self._clock.monotonic()
            pending.request_bytes = size

    def acknowledged(self, command_id: str) -> None:
        """Note that the broker has the command."""
        if (pending := self._pending.get(command_id)) is not None:
            pending.acknowledged_at = self._clock.monotonic()

    def progressed(self, command_id: str) -> None:
        """Note that progress of the command came in here."""
        if (pending := self._pending.get(command_id)) is not None and pending.progressed_at is None:
            pending.progressed_at = self._clock.monotonic()

    def park(self, command_id: str) -> Waiter:
        """Put a waiter in place; CapacityError when too many callers are parked."""
        if self._parked >= self._max_waiters:
            raise CapacityError(f"{self._max_waiters} callers wait on this node already (HOMING_COMMAND_MAX_WAITERS)")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        waiter = Waiter(self._clock.monotonic(), self._loop)
        self._waiters.setdefault(command_id, []).append(waiter)
        self._parked += 1
        return waiter

    def leave(self, command_id: str, waiter: Waiter) -> None:
        """Take a waiter away, whether it was completed or not."""
        if waiter.closed is not None:  # its caller went away in the moment in which the outcome came
            self._close(waiter)
        waiters = self._waiters.get(command_id)
        if waiters is None or waiter not in waiters:
            return
        waiters.remove(waiter)
        self._parked -= 1
        if not waiters:
            del self._waiters[command_id]

    def complete(self, outcome: Outcome, record_seconds: float | None = None) -> bool:
        """Close the command and wake all its callers; false when nothing of it was here. Doing it twice is harmless.

        `record_seconds` is how long the store took over a response that came in here.
        """
        pending = self._pending.pop(outcome.command_id, None)
        known = pending is not None
        if pending is not None and pending.registered:
            pending.close(outcome, self._clock.monotonic(), record_seconds)
        elif pending is not None:  # ended by another node before the store told us that it has it
            pending = None
            if self.on_foreign is not None:
                self.on_foreign(outcome)
        waiters = self._waiters.pop(outcome.command_id, ())
        for waiter in waiters:
            self._parked -= 1
            if not waiter.future.done():
                waiter.closed, pending = pending, None
                waiter.future.set_result(outcome)
        if pending is not None and self.on_closed is not None:
            self.on_closed(pending)
        return known or bool(waiters)

    def ended(self, outcome: Outcome) -> None:
        """Close a command whose outcome this node made without a response."""
        known = outcome.command_id in self._pending
        self.complete(outcome)
        if not known and self.on_foreign is not None:
            self.on_foreign(outcome)

    def delivered(self, waiter: Waiter) -> None:
        """Note that a parked caller was handed the outcome."""
        if waiter.closed is not None:
            waiter.closed.delivered_at = self._clock.monotonic()
            self._close(waiter)

    def parked_before(self, instant: float) -> list[str]:
        """Commands with a caller parked since before `instant`: what a lost wake-up may concern.

        Not those that the store does not have yet: looked up there they would count as gone.
        """
        return [
            command_id
            for command_id, waiters in self._waiters.items()
            if waiters[0].parked_at <= instant and self._is_registered(command_id)
        ]

    def long_acknowledged(self, opened_before: float) -> Iterator[str]:
        """Each open command, once, that was opened before `opened_before` and that the broker has acknowledged.

        One whose PUBACK comes later than that is not among them; it stays `pending` for readers on other nodes.
        """
        while self._unmarked and self._unmarked[0][0] <= opened_before:
            _, command_id = self._unmarked.popleft()
            pending = self._pending.get(command_id)
            if pending is not None and pending.acknowledged_at is not None:
                yield command_id

    def _is_registered(self, command_id: str) -> bool:
        pending = self._pending.get(command_id)
        # Who waits for a command of another node has joined it, so it is on record.
        return pending is None or pending.registered

    def _close(self, waiter: Waiter) -> None:
        pending, waiter.closed = waiter.closed, None
        if pending is not None and self.on_closed is not None:
            self.on_closed(pending)
