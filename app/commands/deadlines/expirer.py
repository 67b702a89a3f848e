"""Ends commands at their deadline, and those whose end could not be recorded at once."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from typing import Final

import structlog

from app.callbacks.open_commands import OpenCommands
from app.callbacks.pending import Pending
from app.commands.deadlines.missed_ends import AT_ONCE, Due, MissedEnds
from app.core.clock import Clock
from app.core.commands.command import CommandState
from app.core.commands.reach import timed_out
from app.core.commands.routing import Outcome
from app.core.errors import CommandNotFoundError, IllegalTransitionError, UnavailableError, UnreadableRecordError
from app.runtime.listeners import Listeners
from app.runtime.telemetry import Bursts, Counters
from app.store.commands import CommandWriter
from app.store.rules import NO_RESPONSE

PATIENCE_SECONDS = 1.0
"""Callers whose command is past its deadline for so long, while the store is away, wait no longer."""
DISOWNED_SECONDS: Final = 1.0
"""The time after which the store carries out no registration any more that its caller has given up."""
MOST_UNKNOWN: Final = 10_000
"""The most ends that are missed of commands that are not open here, and perhaps on record: others end them later."""


class Expirer:
    """Keeps the deadlines of this node's open commands on the monotonic clock.

    At a deadline the same compare-and-set runs as for a response; whoever loses takes the winner's outcome.
    """

    def __init__(
        self,
        *,
        store: CommandWriter,
        open_commands: OpenCommands,
        clock: Clock,
        node_id: str,
        counters: Counters,
        tells: Callable[[str], bool] = lambda _profile: False,
    ) -> None:
        """`tells` is whether the broker says that nobody is subscribed to a command of this profile."""
        self.kept: Final[Listeners[str, timedelta]] = Listeners()
        """Called with a command whose deadline is kept from now on, and with how far away that is."""
        self._tells = tells
        self._store = store
        self._open_commands = open_commands
        self._clock = clock
        self._node_id = node_id
        self._counters = counters
        self._due: list[Due] = []
        self._missed = MissedEnds(clock)
        self._changed = asyncio.Event()
        self._bursts = Bursts(clock)
        self._log = structlog.get_logger()

    def keep(self, command_id: str, timeout: timedelta) -> None:
        """Time the command out after `timeout` from now, unless it is closed by then."""
        now = self._clock.monotonic()
        self._push(Due(now + timeout.total_seconds(), command_id, CommandState.TIMED_OUT, None, now))
        self.kept(command_id, timeout)

    def disown(self, command_id: str, error: bytes) -> None:
        """End the command as unsent if it is held: its caller was told that it is not, and may send it once more.

        In a moment, as the store may yet put it on record. When the store is away, as soon as it is back.
        """
        now = self._clock.monotonic()
        self._push(Due(now + DISOWNED_SECONDS, command_id, CommandState.UNSENT, error, now, only_held=True))

    async def end(
        self, command_id: str, state: CommandState, error: bytes | None = None, *, only_held: bool = False
    ) -> Outcome | None:
        """End the command now; when the store is away, None, and it is ended as soon as the store is back.

        With `only_held`, one that a node has claimed meanwhile stays as it is, and UnavailableError says that the store
        is away. Without an error one that has timed out gets what is known of it.
        """
        due = Due(self._clock.monotonic(), command_id, state, error, only_held=only_held)
        try:
            return await self._end(due)
        except UnavailableError as failure:
            if only_held:
                raise
            self._miss(due, failure)
            return None

    async def _end(self, due: Due) -> Outcome | None:
        command_id, state, error = due.command_id, due.state, due.error
        pending = None if due.only_held else self._open_commands.get(command_id)
        if state is CommandState.TIMED_OUT and error is None:
            error = self._what_is_known(pending)
        if pending is not None:
            pending.withdraw()
        try:
            finished = await self._store.finish(command_id, state, self._node_id, error, only_held=due.only_held)
        except (CommandNotFoundError, UnreadableRecordError):
            self._open_commands.discard(command_id)
            return None
        except IllegalTransitionError:
            return None  # it was sent after all: its deadline ends it
        if finished.won:
            self._open_commands.ended(finished.outcome)
        else:
            self._open_commands.complete(finished.outcome)
        return finished.outcome

    def _miss(self, due: Due, failure: UnavailableError) -> None:
        """Try it again when the store may be back."""
        self._tell_not_ended(due.command_id, due.state, failure)
        if len(self._missed) >= len(self._open_commands) + MOST_UNKNOWN and due.command_id not in self._open_commands:
            self._counters["drop.missed_end"] += 1
            return
        self._missed.add(due)
        self._changed.set()

    def _send_callers_away(self) -> None:
        """Let no caller wait for the store who is past the deadline already."""
        before = self._clock.monotonic() - PATIENCE_SECONDS
        for due in self._missed:
            if due.state is CommandState.TIMED_OUT and due.at <= before:
                self._open_commands.give_up(due.command_id)

    def _tell_not_ended(self, command_id: str, state: CommandState, failure: UnavailableError) -> None:
        count = self._bursts.count(state.value)
        if count:
            self._log.warning(
                "command_not_ended", command_id=command_id, state=state.value, reason=str(failure), count=count
            )

    def _what_is_known(self, pending: Pending | None) -> bytes:
        if pending is None or not pending.registered:
            return NO_RESPONSE
        return timed_out(pending.reach(tells=self._tells(pending.profile)))

    async def run(self) -> None:
        """End what is due, until cancelled."""
        while True:
            due, missed = self._pop_due(AT_ONCE), self._missed.pop_due(self._concerns_us)
            if not (due or missed):
                await self._rest()
                continue
            taken, taken_later = await asyncio.gather(self._end_all(due), self._end_all(missed))
            if len(due) == AT_ONCE and not taken:  # the store is away: nor does it take the next ones
                for one in self._pop_due(len(self._due)):
                    self._missed.add(one)
            if taken_later:
                self._missed.taken()
            elif missed:
                self._send_callers_away()

    async def _rest(self) -> None:
        """Return when something is due, or may be."""
        self._changed.clear()
        next_at = min(self._due[0].at if self._due else inf, self._missed.next_at)
        delay = next_at - self._clock.monotonic() if next_at < inf else None
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._changed.wait()

    async def _end_all(self, ends: Sequence[Due]) -> int:
        """Return how many of them the store has taken."""
        return sum(await asyncio.gather(*map(self._end_due, ends)))

    async def _end_due(self, due: Due) -> bool:
        try:
            await self._end(due)
        except UnavailableError as failure:
            self._miss(due, failure)
            return False
        return True

    def _push(self, due: Due) -> None:
        earliest = not self._due or due.at < self._due[0].at
        heapq.heappush(self._due, due)
        if earliest:
            self._changed.set()
        if len(self._due) > 2 * len(self._open_commands) + 1000:
            self._compact()

    def _compact(self) -> None:
        """Let go of deadlines of closed commands, so that long timeouts do not pile up."""
        self._due = [due for due in self._due if self._concerns_us(due)]
        heapq.heapify(self._due)

    def _pop_due(self, most: int) -> list[Due]:
        now = self._clock.monotonic()
        due: list[Due] = []
        while self._due and self._due[0].at <= now and len(due) < most:
            one = heapq.heappop(self._due)
            if self._concerns_us(one):
                due.append(one)
        return due

    def _concerns_us(self, due: Due) -> bool:
        # A command that is ended as unsent was closed here already, and is still open in the store.
        if due.state is not CommandState.TIMED_OUT:
            return True
        # A claim that was given back left its deadline here, and the next one has another.
        pending = self._open_commands.get(due.command_id)
        return pending is not None and pending.opened_at <= due.kept_at
