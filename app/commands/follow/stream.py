"""Follows all commands of the cluster, for those on this node who want to be told of some.

One reader asks the store for all of them, ten times a second while anybody follows and never else; less often where so
many follow that they rest. What nobody follows is not even written: so whoever begins first has it written from then
on, and for a while after the last one has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from random import SystemRandom
from typing import Final, Protocol

import structlog

from app.core.commands.stream import CommandChange, Marks, Position, StreamPage
from app.core.errors import StoreRefusedError, UnavailableError
from app.runtime.telemetry import Counters
from app.store.command_stream import CommandChanges
from app.store.commands import CommandReader

INTERVAL_SECONDS: Final = 0.1
"""The time between two readings of all of them, where few follow."""
PAUSE_EACH_SECONDS: Final = 0.01
"""Each follower adds so much to the time for which all of them rest once they were told: many cost little more."""
LONGEST_PAUSE_SECONDS: Final = 0.5
TOLD_TOGETHER: Final = 5
"""About so many are told in one turn of the loop, which wakes once for all of them."""
KEPT: Final = timedelta(minutes=10)
"""The time for which events are written after the last follower has gone: as long as one may be away."""
RENEW_SECONDS: Final = 60.0
KNOWN_SECONDS: Final = 1.0
"""The time for which the last known bound is believed, so that many who come back ask the store once."""
MOST_WAITING_BYTES: Final = 1_000_000
"""The bytes that may wait for one follower who does not take them."""

_RANDOM: Final = SystemRandom()
_READ: Final = Marks(())
"""The marks of a follower for whom no page is read any more: a thousand of them need not keep 256 marks each."""
_ABOUT_BYTES: Final = 300
"""The bytes that an event counts for while it waits and is not written out yet, roughly."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The place where a follower begins: behind `marks`.

    None is missing since the millisecond `whole`; if `gap`, some from before may be.
    """

    marks: Marks
    whole: int
    gap: bool


class StreamListener(Protocol):
    """The port by which a follower is told."""

    @property
    def view(self) -> Hashable:
        """Listeners of one view want and may know the same, so that an event is written once for all of them."""

    def event(self, one: CommandChange, /) -> bytes:
        """Nothing when it is none of theirs."""

    def gap(self, since: int, /) -> bytes:
        """Some may be missing, and none is since this millisecond."""

    def cut_off(self) -> None:
        """They leave too much, and are told no more."""


class PageViews:
    """A page that all are told of now, written once for each view of it."""

    def __init__(self, page: StreamPage) -> None:
        self.page: Final = page
        self._written: dict[Hashable, bytes] = {}

    def of(self, listener: StreamListener) -> bytes:
        """Return what a listener is told of its events."""
        if not self.page.changes:
            return b""
        view = listener.view
        told = self._written.get(view)
        if told is None:
            told = self._written[view] = _written(listener, self.page.changes)
        return told


def _written(listener: StreamListener, changes: Iterable[CommandChange]) -> bytes:
    return b"".join(map(listener.event, changes))  # many small ones would keep much more memory from being freed


class StreamFollower:
    """One who follows. First pages are read for them alone (`took`); what is told to all meanwhile waits until then."""

    def __init__(
        self, begun: Begun, listener: StreamListener, counters: Counters, most_waiting_bytes: int = MOST_WAITING_BYTES
    ) -> None:
        self.changed: Final = asyncio.Event()
        """Set when there may be something to take."""
        self.marks = begun.marks
        """The place up to which was read for them alone."""
        self.whole = begun.whole
        """The millisecond since which no event is missing, as the followers were told."""
        self.until = begun.whole
        """All from before this millisecond was taken, so that they may come back with it."""
        self._listener = listener
        self._counters = counters
        self._most_waiting_bytes = most_waiting_bytes
        self._latest = begun.whole
        self._early: list[StreamPage] | None = []
        """The pages that all followers were told while other pages were read for this one alone."""
        self._waiting: list[bytes] = []
        self._bytes = 0

    def took(self, page: StreamPage) -> bytes:
        """Return what they are told of a page that was read for them."""
        told = self._gap(page) + _written(self._listener, page.changes)
        self.marks, self.until = page.marks, max(page.until, self.whole)
        return told

    def caught_up(self) -> None:
        """All that was there was read for them: from now on they are told with all others."""
        early, self._early, self._bytes = self._early or (), None, 0
        self._latest = self.until
        for page in early:
            changes = [one for one in page.changes if self.marks.read(one.position.partition, one.position.mark)]
            self._put(page, _written(self._listener, changes))
        self.marks = _READ

    def take(self) -> bytes:
        """Return what has come meanwhile."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        self.until = self._latest
        return b"".join(waiting)

    def tell(self, views: PageViews) -> None:
        """Put by what is theirs, unless they have left too much of what came before."""
        page = views.page
        if self._bytes > self._most_waiting_bytes:
            self._waiting.clear()
            self._early = None
            self._listener.cut_off()
        elif self._early is None:
            self._put(page, views.of(self._listener))
        else:
            self._early.append(page)
            self._bytes += _ABOUT_BYTES * len(page.changes)

    def _put(self, page: StreamPage, told: bytes) -> None:
        data = self._gap(page) + told
        if data:
            self._waiting.append(data)
            self._bytes += len(data)
        self._latest = max(page.until, self._latest, self.whole)
        if self._waiting:
            self.changed.set()
        else:
            self.until = self._latest

    def _gap(self, page: StreamPage) -> bytes:
        if page.whole <= self.whole:
            return b""
        self.whole = page.whole
        self._counters["happening.gaps"] += 1
        return self._listener.gap(page.whole)


class CommandStream:
    """`always` has them written whether or not anybody follows."""

    def __init__(self, store: CommandChanges, commands: CommandReader, counters: Counters, *, always: bool) -> None:
        self.known_seconds = KNOWN_SECONDS
        self.pause_each_seconds = PAUSE_EACH_SECONDS
        self.most_waiting_bytes = MOST_WAITING_BYTES
        self._store = store
        self._commands = commands
        self._counters = counters
        self._always = always
        self._followers: set[StreamFollower] = set()
        self._wanted = asyncio.Event()
        self._asking = asyncio.Lock()
        self._since = 0
        self._asked_at = float("-inf")
        self._kept_on = True
        self._marks = Marks.since(1)
        self._whole = 0
        self._told = 0
        """The latest millisecond that anybody here knows of."""
        self._log = structlog.get_logger()

    def __len__(self) -> int:
        return len(self._followers)

    async def begin(self, after: Position | None) -> Begun:
        """Return where to read on after a position, or from now on; have events be written. StoreUnavailableError."""
        since = await self._kept(self.known_seconds)
        now = max(await self._commands.now() // 1000, since)
        if now < self._told:
            since = await self._begin_anew()
            now = max(since, self._told)
        self._told = max(self._told, now)
        if after is None:
            return Begun(Marks.since(now), now, gap=False)
        if after.ms > now:  # the store's clock was set back meanwhile, and nobody knows what they have seen
            return Begun(Marks.since(now), now, gap=self._missing())
        if after.ms < since:
            return Begun(Marks.after(after), since, gap=self._missing())
        return Begun(Marks.after(after), after.ms, gap=False)

    def follower(self, begun: Begun, listener: StreamListener) -> StreamFollower:
        """One who begins there."""
        return StreamFollower(begun, listener, self._counters, self.most_waiting_bytes)

    async def page(self, marks: Marks) -> StreamPage:
        """Return what comes after these marks. Waits for an absent store, as those do who are told."""
        while True:
            try:
                return await self._store.after(marks)
            except UnavailableError as error:
                self._log.debug("happenings_not_read", reason=str(error))
                await asyncio.sleep(INTERVAL_SECONDS)

    def pause(self, now: float) -> float:
        """Return for how many seconds a follower rests who was told `now`, so that what comes meanwhile comes at once.

        It is by chance a little longer or shorter: they must not all be told in one moment, while commands wait. A few
        are: all rest until the next beat, and there are so many beats that few have the same one.
        """
        seconds = self._rest_seconds()
        if seconds <= INTERVAL_SECONDS:
            return 0.0
        beat = seconds * TOLD_TOGETHER / len(self._followers)
        return ceil((now + seconds * _RANDOM.uniform(0.75, 1.25)) / beat) * beat - now

    def interval(self) -> float:
        """Return after how many seconds they are read again: twice in the time for which those rest who are told."""
        return max(INTERVAL_SECONDS, self._rest_seconds() / 2)

    def _rest_seconds(self) -> float:
        return min(len(self._followers) * self.pause_each_seconds, LONGEST_PAUSE_SECONDS)

    @contextmanager
    def follow(self, follower: StreamFollower) -> Iterator[None]:
        """Tell them from now on. What they read until then is read once more: they know it by its position."""
        if not self._followers:
            self._marks, self._whole = follower.marks.copy(), follower.whole
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
                    await self._kept(RENEW_SECONDS if self._kept_on else self.known_seconds)
                if self._followers:
                    complete = await self.read()
            except (UnavailableError, StoreRefusedError) as error:
                self._log.debug("happenings_not_read", reason=str(error))
            if not self._followers:
                await self._rest()
            elif complete:
                await asyncio.sleep(max(0.0, self.interval() - (loop.time() - began)))

    async def read(self) -> bool:
        """Tell all who follow what has happened; whether that was all. UnavailableError, StoreRefusedError."""
        page = await self._store.after(self._marks)
        if self._kept_on and not page.kept:
            self._kept_on = False
            await self._kept(0.0)  # first, or each partition that begins anew is a gap of its own
            page = await self._store.after(self._marks)
        self._whole = max(self._whole, page.whole)
        if max(page.until, self._whole) < self._told:
            await self._begin_anew()  # before anybody is told: who comes back with what stands before it has a gap
        self._marks, self._kept_on = page.marks, page.kept
        self._told = max(self._told, page.until, self._whole, *(one.position.ms for one in page.changes[-1:]))
        self._counters["happening.read"] += len(page.changes)
        views = PageViews(page)
        for follower in self._followers:
            follower.tell(views)
        return page.complete

    async def _rest(self) -> None:
        """Until somebody follows; where it is always written, until that must be said again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RENEW_SECONDS / 2 if self._always else None):
                await self._wanted.wait()

    async def _begin_anew(self) -> int:
        """The store's clock was set back: what happens now must not stand before what was told. Where it does stand."""
        async with self._asking:
            self._since = await self._store.keep(KEPT, self._told)
        self._log.warning("happenings_begun_anew", told_ms=self._told, since_ms=self._since)
        return self._since

    def _missing(self) -> bool:
        self._counters["happening.gaps"] += 1
        return True

    async def _kept(self, known_seconds: float) -> int:
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_at >= known_seconds:
                at = loop.time()
                self._since = await self._store.keep(KEPT)
                self._asked_at = at
            return self._since
