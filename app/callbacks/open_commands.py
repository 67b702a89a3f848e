"""The open commands whose home is this node."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from app.callbacks.observer import Observers
from app.callbacks.pending import Pending
from app.callbacks.waiters import Waiters
from app.core.access.places import ConcurrencyPermit
from app.core.clock import Clock
from app.core.commands.command import Command
from app.core.commands.routing import Outcome
from app.core.errors import CapacityError
from app.mqtt.base import Puback
from app.runtime.telemetry import Fill


class OpenCommands:
    """Holds them, at most `most`, and closes them. Nothing here awaits.

    All that it asks of `waiters` is to wake the callers of what has ended, or to send them away.
    """

    def __init__(self, clock: Clock, waiters: Waiters, observers: Observers, *, most: int) -> None:
        self._clock = clock
        self._waiters = waiters
        self._observers = observers
        self._most = most
        self._pending: dict[str, Pending] = {}
        self._unmarked: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Pending]:
        """The open commands, oldest first."""
        return iter(self._pending.values())

    def __contains__(self, command_id: str) -> bool:
        return command_id in self._pending

    def fills(self) -> dict[str, Fill]:
        """Return how full it is."""
        return {"pending": Fill(len(self._pending), self._most)}

    def check_room(self) -> None:
        """CapacityError when the node has too many."""
        if len(self._pending) >= self._most:
            raise CapacityError(f"this node has {self._most} open commands already (HOMING_COMMAND_MAX_PENDING)")

    def open(self, command_id: str, place: ConcurrencyPermit | None = None) -> Pending:
        """Note a new command before anything is sent; CapacityError when the node has too many.

        It has its `place` until it ends, or is discarded.
        """
        self.check_room()
        now = self._clock.monotonic()
        pending = self._pending[command_id] = Pending(now, place=place)
        if place is not None:
            place.enter()
        self._unmarked.append((now, command_id))
        return pending

    def reopen(self, command: Command) -> None:
        """Note a command that an earlier incarnation of this node left open; not one to refuse for lack of room."""
        self._pending.setdefault(command.id, Pending(self._clock.monotonic(), command))

    def discard(self, command_id: str) -> None:
        """Forget a command that was never registered."""
        self._take(command_id)

    def get(self, command_id: str) -> Pending | None:
        """An open command; None when it is none of this node."""
        return self._pending.get(command_id)

    def on_record(self, command_id: str) -> bool:
        """True if the store has it: looked up before that it would count as gone.

        Who waits for a command of another node has joined it, so that one is.
        """
        pending = self._pending.get(command_id)
        return pending is None or pending.registered

    def registered(self, pending: Pending, command: Command) -> None:
        """Note that the store has it."""
        pending.about(command)
        pending.registered_at = self._clock.monotonic()

    def published(self, pending: Pending, size: int, puback: Puback) -> None:
        """Note that it was handed over to the broker's connection; `size` of its payload in bytes.

        `puback` is cancelled when the command is closed, so that one that still waits there does not leave.
        """
        if pending.closed_at is None:
            pending.published_at = self._clock.monotonic()
            pending.request_bytes = size
            pending.puback = puback

    def acknowledged(self, pending: Pending) -> None:
        """Note that the broker has it; what is closed by then was too quick for that."""
        if pending.closed_at is None:
            pending.acknowledged_at = self._clock.monotonic()

    def progressed(self, command_id: str) -> None:
        """Note that progress of the command came in here."""
        if (pending := self._pending.get(command_id)) is not None and pending.progressed_at is None:
            pending.progressed_at = self._clock.monotonic()

    def complete(self, outcome: Outcome, record_seconds: float | None = None) -> bool:
        """Close the command and wake all its callers; false when nothing of it was here. Doing it twice is harmless.

        `record_seconds` is how long the store took over a response that came in here.
        """
        pending = self._take(outcome.command_id)
        if pending is None:
            return self._waiters.wake(outcome, None)
        if pending.registered:
            pending.close(outcome, self._clock.monotonic(), record_seconds)
            self._waiters.wake(outcome, pending)
        else:  # ended by another node before the store told us that it has it
            self._tell_foreign(outcome)
            self._waiters.wake(outcome, None)
        return True

    def ended(self, outcome: Outcome) -> None:
        """Close a command whose outcome this node made without a response."""
        known = outcome.command_id in self._pending
        self.complete(outcome)
        if outcome.follower is not None:
            for tell_next in self._observers.next_in_lane:
                tell_next(outcome.follower)
        if not known:
            self._tell_foreign(outcome)

    def give_up(self, command_id: str) -> None:
        """Send the callers of a command away: its outcome is not known. It stays open."""
        self._waiters.give_up(command_id)

    def long_acknowledged(self, opened_before: float) -> Iterator[str]:
        """Each open command, once, that was opened before `opened_before` and that the broker has acknowledged.

        One whose PUBACK comes later than that is not among them; it stays `pending` for readers on other nodes.
        """
        while self._unmarked and self._unmarked[0][0] <= opened_before:
            _, command_id = self._unmarked.popleft()
            pending = self._pending.get(command_id)
            if pending is not None and pending.acknowledged_at is not None:
                yield command_id

    def _take(self, command_id: str) -> Pending | None:
        pending = self._pending.pop(command_id, None)
        if pending is not None and pending.place is not None:
            pending.place.leave()
        return pending

    def _tell_foreign(self, outcome: Outcome) -> None:
        for tell in self._observers.foreign:
            tell(outcome)
