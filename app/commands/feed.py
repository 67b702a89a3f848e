"""Follows all commands of the cluster, for those on this node who want to be told of some.

One reader asks the store for all of them, ten times a second while anybody follows and never else. What nobody follows
is not even written: so whoever begins first has it written from then on, and for a while after the last one has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

import structlog

from app.core.errors import StoreRefusedError, UnavailableError
from app.core.happenings import Happening, Marks, Page, Position
from app.observability import Counters
from app.store.commands import CommandReader
from app.store.happenings import Happenings

INTERVAL_SECONDS: Final = 0.1
"""How often all of them are read."""
KEPT: Final = timedelta(minutes=10)
"""For how long they are written after the last one who followed has gone: as long as one may be away."""
RENEW_SECONDS: Final = 60.0
KNOWN_SECONDS: Final = 1.0
"""For how long it is believed since when none is missing, so that many who come back ask the store once."""
MOST_WAITING_BYTES: Final = 1_000_000
"""What may wait for one follower who does not take it."""

Show = Callable[[Happening], bytes]
"""What a follower is told of it; nothing when it is none of theirs."""


class Follower:
    """One who follows, after `marks`. `cut_off` is called when too much waits for them: they are told no more."""

    def __init__(self, marks: Marks, show: Show, cut_off: Callable[[], None]) -> None:
        self.changed: Final = asyncio.Event()
        """Set when there may be something to take."""
        self.until = 0
        """All from before this millisecond was told."""
        self.lost_since: int | None = None
        """Some were lost, perhaps: none is missing since this millisecond. Whoever has told them sets it to None."""
        self._marks = marks
        self._show = show
        self._cut_off = cut_off
        self._waiting: list[tuple[Happening, bytes]] = []
        self._bytes = 0

    def took(self, page: Page) -> bytes:
        """What they are told of a page that was read for them."""
        self._marks, self.until = page.marks, page.until
        return b"".join([self._show(one) for one in page.happenings])

    @property
    def marks(self) -> Marks:
        """How far they were told."""
        return self._marks

    def take(self) -> bytes:
        """What has come meanwhile."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        return b"".join([data for one, data in waiting if self._marks.read(one.position.partition, one.position.mark)])

    def tell(self, page: Page) -> None:
        """Put by what is theirs, unless they have left too much of what came before."""
        if self._bytes > MOST_WAITING_BYTES:
            self._waiting.clear()
            self._cut_off()
            return
        self.until = page.until
        for one in page.happenings:
            data = self._show(one)
            if data:
                self._waiting.append((one, data))
                self._bytes += len(data)
        if self._waiting:
            self.changed.set()


class Feed:
    """`always` has them written whether or not anybody follows."""

    def __init__(self, store: Happenings, commands: CommandReader, counters: Counters, *, always: bool) -> None:
        self._store = store
        self._commands = commands
        self._counters = counters
        self._always = always
        self._followers: set[Follower] = set()
        self._wanted = asyncio.Event()
        self._asking = asyncio.Lock()
        self._since = 0
        self._asked_at = float("-inf")
        self._marks = Marks.since(1)
        self._until = 0
        self._log = structlog.get_logger()

    def __len__(self) -> int:
        return len(self._followers)

    async def begin(self, after: Position | None) -> tuple[Marks, int | None]:
        """Where to read on after a position, or from now on; and since when (ms) none is missing if some are, perhaps.

        From now on they are written. StoreUnavailableError.
        """
        since, now = await self._kept(KNOWN_SECONDS), await self._commands.now() // 1000
        if after is None:
            return Marks.since(now), None
        if after.ms > now:  # the store's clock was set back meanwhile, and nobody knows what they have seen
            return Marks.since(now), self._missing(now)
        return Marks.after(after), self._missing(since) if after.ms < since else None

    async def page(self, marks: Marks) -> Page:
        """What comes after these marks. Waits for an absent store, as those do who are told."""
        while True:
            try:
                return await self._store.after(marks)
            except UnavailableError as error:
                self._log.debug("happenings_not_read", reason=str(error))
                await asyncio.sleep(INTERVAL_SECONDS)

    async def lost(self, began_ms: int) -> int | None:
        """Since when none is missing, if some may have been dropped while somebody read on from this millisecond."""
        since = await self._kept(KNOWN_SECONDS)
        return self._missing(since) if began_ms < since else None

    @contextmanager
    def follow(self, follower: Follower) -> Iterator[None]:
        """Tell them from now on. What they read until then is read once more: they know it by its position."""
        if not self._followers:
            self._marks, self._until = follower.marks.copy(), 0
        self._followers.add(follower)
        self._wanted.set()
        try:
            yield
        finally:
            self._followers.discard(follower)
            if not self._followers:
                self._wanted.clear()

    async def run(self) -> None:
        """Read, and have it be written, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            complete = True
            try:
                if self._followers or self._always:
                    await self._renew()
                if self._followers:
                    complete = await self._read()
            except (UnavailableError, StoreRefusedError) as error:
                self._log.debug("happenings_not_read", reason=str(error))
            if not self._followers:
                await self._rest()
            elif complete:
                await asyncio.sleep(max(0.0, INTERVAL_SECONDS - (loop.time() - began)))

    async def _rest(self) -> None:
        """Until somebody follows; where it is always written, until that must be said again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RENEW_SECONDS / 2 if self._always else None):
                await self._wanted.wait()

    async def _read(self) -> bool:
        """Tell all who follow what has happened; whether that was all."""
        page = await self._store.after(self._marks)
        self._marks, self._until = page.marks, page.until
        self._counters["happening.read"] += len(page.happenings)
        for follower in self._followers:
            follower.tell(page)
        return page.complete

    async def _renew(self) -> None:
        """Have it be written for longer, when it is time. What was lost meanwhile was lost by the store."""
        before = self._until
        since = await self._kept(RENEW_SECONDS)
        if 0 < before < since:
            self._until = since
            for follower in self._followers:
                follower.lost_since = self._missing(since)
                follower.changed.set()

    def _missing(self, since: int) -> int:
        self._counters["happening.gaps"] += 1
        return since

    async def _kept(self, known_seconds: float) -> int:
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_at >= known_seconds:
                at = loop.time()
                self._since = await self._store.keep(KEPT)
                self._asked_at = at
            return self._since
