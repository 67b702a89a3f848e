"""Ends commands at their deadline, and those whose end could not be recorded at once."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from app.callbacks.open_commands import OpenCommands
from app.callbacks.pending import Pending
from app.core.clock import Clock
from app.core.commands.command import CommandState
from app.core.commands.reach import timed_out
from app.core.commands.routing import Outcome
from app.core.errors import CommandNotFoundError, IllegalTransitionError, UnavailableError, UnreadableRecordError
from app.runtime.listeners import Listeners
from app.runtime.telemetry import Bursts
from app.store.commands import CommandWriter
from app.store.rules import NO_RESPONSE

RETRY_SECONDS = 0.5
PATIENCE_SECONDS = 1.0
"""Callers whose command is past its deadline for so long, while the store is away, wait no longer."""
DISOWNED_SECONDS: Final = 1.0
"""The time after which the store carries out no registration any more that its caller has given up."""
BATCH = 500


class _Due(NamedTuple):
    at: float
    command_id: str
    state: CommandState
    error: bytes | None
    kept_at: float = 0.0
    since: float | None = None
    """The instant at which it was due first, where the store was away then."""
    only_held: bool = False


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
        self._due: list[_Due] = []
        self._changed = asyncio.Event()
        self._bursts = Bursts(clock)
        self._log = structlog.get_logger()

    def keep(self, command_id: str, timeout: timedelta) -> None:
        """Time the command out after `timeout` from now, unless it is closed by then."""
        now = self._clock.monotonic()
        self._push(_Due(now + timeout.total_seconds(), command_id, CommandState.TIMED_OUT, None, now))
        self.kept(command_id, timeout)

    def disown(self, command_id: str, error: bytes) -> None:
        """End the command as unsent if it is held: its caller was told that it is not, and may send it once more.

        In a moment, as the store may yet put it on record. When the store is away, as soon as it is back.
        """
        now = self._clock.monotonic()
        self._push(_Due(now + DISOWNED_SECONDS, command_id, CommandState.UNSENT, error, now, only_held=True))

    async def end(
        self, command_id: str, state: CommandState, error: bytes | None = None, *, only_held: bool = False
    ) -> Outcome | None:
        """End the command now; when the store is away, None, and it is ended as soon as the store is back.

        With `only_held`, one that a node has claimed meanwhile stays as it is, and UnavailableError says that the store
        is away. Without an error one that has timed out gets what is known of it.
        """
        return await self._end(_Due(self._clock.monotonic(), command_id, state, error, only_held=only_held))

    async def _end(self, due: _Due) -> Outcome | None:
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
        except UnavailableError as failure:
            if due.only_held:
                raise
            self._tell_not_ended(command_id, state, failure)
            now = self._clock.monotonic()
            since = due.at if due.since is None else due.since
            if state is CommandState.TIMED_OUT and now - since >= PATIENCE_SECONDS:
                self._open_commands.give_up(command_id)
            self._push(_Due(now + RETRY_SECONDS, command_id, state, error, now, since))
            return None
        if finished.won:
            self._open_commands.ended(finished.outcome)
        else:
            self._open_commands.complete(finished.outcome)
        return finished.outcome

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
            due = self._pop_due()
            if due:
                await asyncio.gather(*map(self._end_due, due))
                continue
            self._changed.clear()
            delay = self._due[0].at - self._clock.monotonic() if self._due else None
            try:
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _end_due(self, due: _Due) -> None:
        try:
            await self._end(due)
        except UnavailableError:  # of what is held: all else is kept by `_end` itself
            self._push(due._replace(at=self._clock.monotonic() + RETRY_SECONDS))

    def _push(self, due: _Due) -> None:
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

    def _pop_due(self) -> list[_Due]:
        now = self._clock.monotonic()
        due: list[_Due] = []
        while self._due and self._due[0].at <= now and len(due) < BATCH:
            one = heapq.heappop(self._due)
            if self._concerns_us(one):
                due.append(one)
        return due

    def _concerns_us(self, due: _Due) -> bool:
        # A command that is ended as unsent was closed here already, and is still open in the store.
        if due.state is not CommandState.TIMED_OUT:
            return True
        # A claim that was given back left its deadline here, and the next one has another.
        pending = self._open_commands.get(due.command_id)
        return pending is not None and pending.opened_at <= due.kept_at
