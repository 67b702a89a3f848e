"""Follows commands for those who watch them on this node: their reports, their outcome, a late response.

What is heard of a command is a hint that it has to be read: wake-ups, what happens on this node, and once an interval
in any case, as hints may be lost. All who watch a command share one reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from app.callbacks.observer import Observer
from app.callbacks.pending import Pending
from app.core.commands.callback import Answer
from app.core.commands.command import Command
from app.core.commands.history import MOST_REPORTS, Account, Report, thinned
from app.core.commands.routing import Outcome, Recorded
from app.core.errors import CommandNotFoundError, StoreRefusedError, UnavailableError, UnreadableRecordError
from app.runtime.telemetry import Fill
from app.store.command_history import CommandHistory

BATCH: Final = 100
"""The number of commands that are read at once."""


class Watch:
    """A command that is watched here, and what is known of it. Read it after each `changed`."""

    def __init__(self, command_id: str) -> None:
        self.command_id: Final = command_id
        self.gone = False
        """True if its record has ended."""
        self.account: Account | None = None
        """The account that was read last, with all reports."""
        self.reading: Final = asyncio.Lock()
        self._waiting: set[asyncio.Event] = set()

    @property
    def last(self) -> int:
        """Return how many reports are known."""
        return 0 if self.account is None else self.account.count

    @property
    def watched(self) -> bool:
        """True if anybody still does."""
        return bool(self._waiting)

    def enter(self) -> asyncio.Event:
        """One more who watches: what is set whenever there is something to see."""
        changed = asyncio.Event()
        self._waiting.add(changed)
        return changed

    def leave(self, changed: asyncio.Event) -> None:
        """One less."""
        self._waiting.discard(changed)

    def take(self, account: Account) -> None:
        """Add what was read, and tell those who watch if it is news."""
        known = self.account
        reports = [*(() if known is None else known.reports), *account.reports]
        if len(reports) > MOST_REPORTS:
            reports = thinned(reports)
        self.account = Account(account.command, account.count, reports)
        if known is None or account.last != known.last:
            self.tell()

    def end(self) -> None:
        """Its record has ended."""
        self.gone = True
        self.tell()

    def tell(self) -> None:
        """Let all who watch look."""
        for changed in self._waiting:
            changed.set()


class CommandFollower:
    """A follower of one command, and how far they have seen it. Numbers are those of app/core/commands/history.py."""

    def __init__(self, watch: Watch, changed: asyncio.Event, account: Account, seen: int) -> None:
        self.changed: Final = changed
        """Set when there may be news."""
        self.seen = seen
        self._watch = watch
        self._account = account

    @property
    def account(self) -> Account:
        """The command as it is known here."""
        return self._watch.account or self._account

    @property
    def gone(self) -> bool:
        """True if its record has ended."""
        return self._watch.gone

    def reports(self) -> Iterable[Report]:
        """Return those that were not seen; they count as seen with that."""
        account = self.account
        news = [one for one in account.reports if one.number > self.seen]
        if news:
            self.seen = news[-1].number
        return news

    def outcome(self) -> Command | None:
        """The command with its outcome, if that is news."""
        account = self.account
        if account.command.finished_at is None or self.seen > account.count:
            return None
        self.seen = account.count + 1
        return account.command

    def verified(self) -> Command | None:
        """The command with what a probe found after it had timed out, if that is news."""
        account = self.account
        if account.command.verified is None or self.seen > account.count + 1:
            return None
        self.seen = account.count + 2
        return account.command

    def late(self) -> Command | None:
        """The command with its late response, if that is news."""
        account = self.account
        if account.command.late is None or self.seen >= account.late_number:
            return None
        self.seen = account.late_number
        return account.command


class Watches(Observer):
    """All commands that are watched on this node. `interval` in seconds."""

    def __init__(self, store: CommandHistory, node_id: str, *, interval: float) -> None:
        self._store = store
        self._node_id = node_id
        self._interval = interval
        self._watches: dict[str, Watch] = {}
        self._heard: set[str] = set()
        self._hinted = asyncio.Event()
        self._log = structlog.get_logger()

    def __len__(self) -> int:
        return len(self._watches)

    def fills(self) -> dict[str, Fill]:
        """Return how many of them wait to be read."""
        return {"watched": Fill(len(self._heard), max(1, len(self._watches)))}

    @asynccontextmanager
    async def follow(self, command_id: str, seen: int = 0) -> AsyncIterator[CommandFollower]:
        """Watch a command from the event after `seen` on; the errors of `CommandHistory.follow`."""
        watch = self._watches.setdefault(command_id, Watch(command_id))
        changed = watch.enter()
        try:
            account = await self._read(watch)
            yield CommandFollower(watch, changed, account, seen)
        finally:
            watch.leave(changed)
            if not watch.watched and self._watches.get(command_id) is watch:
                del self._watches[command_id]

    def hear(self, command_id: str) -> None:
        """Something may have happened to this command."""
        if command_id in self._watches:
            self._heard.add(command_id)
            self._hinted.set()

    def recorded(self, recorded: Recorded, answer: Answer, arrived_at: float, now: float) -> None:
        """A response came in on this node, which the store tells nobody about here."""
        del answer, arrived_at, now
        if self._watches and recorded.command_id is not None:
            self.hear(recorded.command_id)

    def closed(self, pending: Pending) -> None:
        """This node knows of an outcome."""
        if self._watches:
            self.hear(pending.command_id)

    def foreign(self, outcome: Outcome) -> None:
        """This node has ended a command of another one."""
        if self._watches:
            self.hear(outcome.command_id)

    async def run(self) -> None:
        """Read what was heard of at once, and everything once an interval, until cancelled."""
        loop = asyncio.get_running_loop()
        look_at = loop.time() + self._interval
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(look_at):
                    await self._hinted.wait()
            self._hinted.clear()
            if loop.time() >= look_at:
                self._heard.update(self._watches)
                look_at = loop.time() + self._interval
            while self._heard:
                some = [self._heard.pop() for _ in range(min(BATCH, len(self._heard)))]
                await asyncio.gather(*(self._look(one) for one in some))

    async def _look(self, command_id: str) -> None:
        watch = self._watches.get(command_id)
        if watch is None or watch.gone:
            return
        try:
            await self._read(watch)
        except CommandNotFoundError:
            watch.end()
        except (UnavailableError, UnreadableRecordError, StoreRefusedError) as error:
            self._log.debug("watched_not_read", command_id=command_id, reason=str(error))

    async def _read(self, watch: Watch) -> Account:
        """One reading at a time, so that each adds to the one before; only the first has the node told."""
        async with watch.reading:
            watcher = self._node_id if watch.account is None else None
            account = await self._store.follow(watch.command_id, watch.last, watcher)
            watch.take(account)
            return account if watch.account is None else watch.account
