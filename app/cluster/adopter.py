"""Fetches the responses that are parked in the MQTT session of a dead node.

A broker goes on giving a durable session its share of the responses while its node is dead, and Mosquitto never hands
them to anybody else. A survivor connects as that client, unsubscribes, takes what is there, and ends the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

import structlog

from app.cluster.directory import ClusterDirectory, NodeInfo
from app.cluster.orphans import Orphans
from app.core.cluster.notices import SessionNotice, Word
from app.core.errors import UnavailableError
from app.runtime.telemetry import Counters

RIGHT: Final = timedelta(seconds=30)
"""The time for which a survivor that dies over it keeps others from adopting the same session."""
IDLE: Final = timedelta(seconds=1)
"""A session from which nothing has come for so long is empty."""
GRACE: Final = timedelta(milliseconds=400)
"""The time that a session may be without its connection before a survivor takes it: a node that was only cut off for a
moment is back by then, and says so."""
MOST_LOST: Final = 256
"""Sessions at a time of which the broker has said that they lost their connection."""

Drain = Callable[[NodeInfo, timedelta], Awaitable[int]]
"""Empties and ends the session of a node; the number of messages that it held."""


@dataclass(frozen=True, slots=True)
class OnNodeDeath:
    """Further work for when a node has died."""

    gone: Callable[[str], None]
    """Called with the id of each node whose session is adopted."""
    died: Callable[[str], None]
    """Called with the id of each of them that the broker has lost just now: it lived until then."""
    adopt: Callable[[str, Sequence[str], timedelta], Awaitable[int]]
    """Takes in what other sessions of the node hold, which had this client id and these subscriptions for commands, and
    returns the number of messages."""


async def _nothing(_client_id: str, _filters: Sequence[str], _idle: timedelta) -> int:
    return 0


NOBODY: Final = OnNodeDeath(lambda _node_id: None, lambda _node_id: None, _nothing)


class _AdoptionCluster(ClusterDirectory, Orphans, Protocol):
    """The part of the cluster that says who lives, and what the dead have left."""


class Adopter:
    """Looks for orphans once per interval, and adopts those that were orphans in the round before as well.

    A node whose lease ran out because Redis was frozen takes it up again within that time. What the broker says of a
    dead session is acted upon sooner. `connected` tells whether this node hears the broker; `named` gives the
    incarnation that a notice is about, if it says enough of it; `gone` and `died` are those of OnNodeDeath.
    """

    def __init__(
        self,
        *,
        cluster: _AdoptionCluster,
        drain: Drain,
        interval: float,
        counters: Counters,
        connected: Callable[[], bool] = lambda: True,
        named: Callable[[SessionNotice], NodeInfo | None] = lambda _notice: None,
        gone: Callable[[str], None] = lambda _node_id: None,
        died: Callable[[str], None] = lambda _node_id: None,
        grace: timedelta = GRACE,
        most_lost: int = MOST_LOST,
    ) -> None:
        self._cluster = cluster
        self._drain = drain
        self._interval = interval
        self._counters = counters
        self._connected = connected
        self._named = named
        self._gone = gone
        self._died = died
        self._grace = grace.total_seconds()
        self._most_lost = most_lost
        self._suspects: frozenset[NodeInfo] = frozenset()
        self._adopting: set[NodeInfo] = set()
        self._lost: dict[str, asyncio.Task[None]] = {}
        self._log = structlog.get_logger()

    @property
    def busy(self) -> bool:
        """True if sessions are known that may hold responses back."""
        return bool(self._suspects or self._adopting or self._lost)

    async def run(self) -> None:
        """Adopt until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._interval)
                try:
                    await self.look()
                except UnavailableError as error:
                    self._log.debug("adoption_waits", reason=str(error))
        finally:
            for task in self._lost.values():
                task.cancel()

    async def look(self) -> None:
        """One round."""
        suspects, self._suspects = self._suspects, frozenset(await self._cluster.orphans())
        for orphan in sorted(self._suspects & suspects, key=lambda one: one.incarnation):
            await self._take(orphan)

    def heard(self, notice: SessionNotice) -> None:
        """Act on what is told of a session."""
        match notice.word:
            case Word.BACK:
                if (task := self._lost.pop(notice.incarnation, None)) is not None:
                    task.cancel()
            case Word.LOST | Word.LEFT:
                self._begin_lost(notice)
            case _:
                pass

    def _begin_lost(self, notice: SessionNotice) -> None:
        if len(self._lost) < self._most_lost:
            self._begin(notice.incarnation, self._take_lost(notice))
        else:
            self._counters["drop.notice"] += 1

    def left_behind(self, orphan: NodeInfo) -> None:
        """Adopt a session of this node itself at once: somebody has taken it over."""
        self._begin(orphan.incarnation, self._take(orphan))

    def _begin(self, incarnation: str, work: Coroutine[Any, Any, None]) -> None:
        if incarnation in self._lost:
            work.close()
            return

        def ended(task: asyncio.Task[None]) -> None:
            if self._lost.get(incarnation) is task:
                del self._lost[incarnation]

        task = asyncio.get_running_loop().create_task(work, name="adopt")
        self._lost[incarnation] = task
        task.add_done_callback(ended)

    async def _take_lost(self, notice: SessionNotice) -> None:
        if notice.word is not Word.LEFT:
            await asyncio.sleep(self._grace)
        # Where this node has lost the broker as well, it is the broker that went away.
        if not self._connected():
            return
        if (lost := await self._when_known(notice)) is not None and self._connected():
            await self._take(lost, lost=True)

    async def _when_known(self, notice: SessionNotice) -> NodeInfo | None:
        """Return what `_known` does, as soon as the store answers."""
        while True:
            try:
                return await self._known(notice)
            except UnavailableError as error:
                self._log.debug("adoption_waits", reason=str(error))
                await asyncio.sleep(self._interval)

    async def _known(self, notice: SessionNotice) -> NodeInfo | None:
        """The incarnation whose session is lost; None where that was adopted already, or nobody knows its name."""
        for one in [*await self._cluster.nodes(), *await self._cluster.orphans()]:
            if one.incarnation == notice.incarnation:
                return one
        forgotten = self._named(notice)
        if forgotten is None or not await self._cluster.note_forgotten(forgotten):
            return None
        self._counters["adoption.forgotten"] += 1
        return forgotten

    async def _take(self, orphan: NodeInfo, *, lost: bool = False) -> None:
        if orphan in self._adopting:
            return
        self._adopting.add(orphan)
        try:
            if await self._cluster.claim(orphan, RIGHT, lost=lost):
                self._gone(orphan.node_id)
                if lost:
                    self._died(orphan.node_id)
                await self._adopt(orphan)
        except UnavailableError as error:  # its turn comes again; the others must not wait for it
            self._log.debug("session_not_adopted", dead_node=orphan.node_id, reason=str(error))
        finally:
            self._adopting.discard(orphan)

    async def _adopt(self, orphan: NodeInfo) -> None:
        holding = asyncio.get_running_loop().create_task(self._hold(orphan))
        try:
            found = await self._drain(orphan, IDLE)
        finally:
            holding.cancel()
        await self._cluster.adopted(orphan)
        self._counters["adoption.sessions"] += 1
        self._counters["adoption.responses"] += found
        self._log.info("session_adopted", dead_node=orphan.node_id, dead=orphan.incarnation, responses=found)

    async def _hold(self, orphan: NodeInfo) -> None:
        while True:
            await asyncio.sleep(RIGHT.total_seconds() / 3)
            try:
                await self._cluster.claim(orphan, RIGHT)
            except UnavailableError:
                continue
