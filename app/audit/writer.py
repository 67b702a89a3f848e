"""Lines of a node's audit on their way to the database: in memory, and on the disk while it is away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import orjson
import structlog

from app.audit.spool import Spool, Spooled, left_behind, open_spool
from app.core.audit.chain import DIRECTORY, MANY, REMOVALS, Chain, ChainHead, Columns, listed
from app.core.audit.lines import AuditBatch, things_of
from app.core.errors import DirectoryError, UnavailableError
from app.runtime.telemetry import Counters
from app.store.audit import SPAN_US, AuditStore, StoredLine

BATCH: Final = 20
"""Lines of one call."""
BATCH_BYTES: Final = 500_000
MANY_IN_LINE: Final = 250
"""Most of what one line tells of, so that it has some 30 KB."""
FEW: Final = 16
"""Less than that has a line of its own each: a line that tells of one thing is found sooner."""
MOST_LINES: Final = 200_000
"""Things told that wait in memory."""
MOST_BYTES: Final = 64 * 2**20
MOST_HEADS: Final = 100
"""The latest ones, of which one line tells."""

SLOW: Final = timedelta(milliseconds=250)
"""The time that the database may take for lines before they are put on the disk as well, where there is one."""

Bind = Callable[[], None]
"""Puts what was told meanwhile into the chain."""


class AuditWriter:
    """The chain of one writer. With a `folder` lines that cannot be written wait there, and outlive this process."""

    def __init__(self, store: AuditStore, counters: Counters, folder: Path | None, *, slow: timedelta = SLOW) -> None:
        self._store = store
        self._counters = counters
        self._folder = folder
        self._slow = slow.total_seconds()
        self._spool: Spool | None = None
        self._spools = True
        self._chain = Chain("")
        self._lines: Final[deque[tuple[Spooled, int]]] = deque()
        """The lines in memory, each with the number of things that it tells."""
        self._before = self._chain.head
        """The head of the chain before these lines."""
        self._waiting = 0
        self._bytes = 0
        self._facts = 0
        self._seen: Final[dict[str, int]] = {}
        self._logged = 0
        self._trouble = ""
        self._log = structlog.get_logger()

    def begin(self, writer: str) -> None:
        """Write as this writer, whose name nobody has had before; ConfigurationError when its folder cannot be used."""
        self._chain = Chain(writer)
        self._before = self._chain.head
        self._spool = None if self._folder is None else open_spool(self._folder, writer)

    @property
    def name(self) -> str:
        """The writer."""
        return self._chain.head.writer

    @property
    def waiting(self) -> int:
        """The number of facts that wait in memory."""
        return self._waiting

    @property
    def trouble(self) -> str:
        """The reason why nothing can be written; empty while writing works."""
        return self._trouble

    @property
    def spools(self) -> bool:
        """True if lines that cannot be written wait on the disk."""
        return self._spool is not None and self._spools and self._spool.has_room()

    @property
    def room(self) -> int:
        """The number of facts for which there is still room in memory."""
        return max(0, MOST_LINES - self._waiting) if self._bytes < MOST_BYTES else 0

    def bind(self, blocks: Sequence[AuditBatch], facts: int) -> None:
        """Put what was told into the chain: from now on it is what it is. `facts` of it are no heads of others."""
        self._facts += facts
        for block in blocks:
            times = block.times()
            if len(times) >= FEW and times == sorted(times) and times[-1] - times[0] <= SPAN_US:
                body = orjson.dumps({"askers": block.askers, "told": block.told})
                self._append(body, Columns(times[-1], MANY, MANY, MANY), len(times))
            else:  # it is not much, a clock was set, or the loop stood still
                for one in block.things():
                    columns = Columns(one["at"], one.get("who"), one.get("device"), one.get("tenant"))
                    self._append(orjson.dumps(one), columns, 1)

    def _append(self, body: bytes, columns: Columns, things: int) -> None:
        line = self._chain.append(body)
        self._lines.append((Spooled(StoredLine(line, columns), self._facts), things))
        self._waiting += things
        self._bytes += len(body)

    async def write(self, bind: Bind) -> None:
        """Write what waits, in order. UnavailableError, DirectoryError: it goes on waiting, on the disk if possible."""
        try:
            if self._spool is not None and not self._spool.is_empty():
                await self._to_disk()  # behind what is there
                await self._drain(self._spool, partial(self._append_all, bind=bind))
            while self._lines:
                batch = self._first()
                await self._append_all([one for one, _ in batch], bind)
                if self._lines and self._lines[0] is batch[0]:  # else they are on the disk by now, and said again
                    self._forget(batch)
        except (UnavailableError, DirectoryError) as error:
            self._fail(error)
            await self._to_disk()
            raise
        self._trouble = ""

    async def _append_all(self, lines: Sequence[Spooled], bind: Bind) -> None:
        """Give lines to the database; while it takes long, all that waits is put on the disk."""
        keeping = asyncio.ensure_future(self._keep(lines))
        try:
            while self._spool is not None and not (await asyncio.wait({keeping}, timeout=self._slow))[0]:
                bind()
                await self._to_disk()
            await keeping
        finally:
            keeping.cancel()

    async def _keep(self, lines: Sequence[Spooled]) -> None:
        await self._store.append([one.kept for one in lines], lines[-1].facts)

    async def _drain(self, spool: Spool, keep: Callable[[Sequence[Spooled]], Awaitable[None]]) -> None:
        """Write what is on the disk. Between batches others have their turn."""
        while lines := await asyncio.to_thread(spool.first, BATCH, BATCH_BYTES):
            await keep(lines)
            spool.take(lines)
            self._counters["audit.written"] += sum(_things(one) for one in lines)

    async def _to_disk(self) -> None:
        """Put what waits in memory on the disk, where there is one with room."""
        spool = self._spool
        if spool is None or not self._lines or not spool.has_room():
            return
        batch = list(self._lines)
        try:
            await asyncio.to_thread(spool.put, self._before, [one for one, _ in batch])
        except OSError as error:
            self._spools = False
            self._log.warning("audit_not_spooled", reason=str(error), waiting=self._waiting)
            return
        self._spools = True
        self._counters["audit.spooled"] += self._forget(batch, written=False)

    def _first(self) -> list[tuple[Spooled, int]]:
        found, size = [], 0
        for one in islice(self._lines, BATCH):
            found.append(one)
            size += len(one[0].kept.line.body)
            if size >= BATCH_BYTES:
                break
        return found

    def _forget(self, batch: Sequence[tuple[Spooled, int]], *, written: bool = True) -> int:
        things = 0
        for spooled, count in batch:
            self._lines.popleft()
            self._bytes -= len(spooled.kept.line.body)
            things += count
        line = batch[-1][0].kept.line
        self._before = ChainHead(line.writer, line.seq, line.hash)
        self._waiting -= things
        if written:
            self._counters["audit.written"] += things
        return things

    async def take_over(self) -> None:
        """Write what writers have left on the disk that are gone."""
        if self._folder is None:
            return
        for spool in await asyncio.to_thread(lambda folder: list(left_behind(folder)), self._folder):
            try:
                writer = spool.writer
                await self._drain(spool, self._keep)  # of our own lines `write` takes care
                if writer is not None:
                    self._log.info("audit_taken_over", writer=writer)
            finally:
                spool.close()

    async def heads(self) -> list[tuple[str, int, str]]:
        """The heads of others with news, for a line of this chain; those of nobody's process go to the log as well."""
        heads = (await self._store.heads())[:MOST_HEADS]
        news = [
            (head, facts)
            for head, facts in heads
            if head.writer != self.name and facts > self._seen.get(head.writer, 0)
        ]
        self._seen.update({head.writer: facts for head, facts in news})
        for head, _ in news:
            if head.writer in (DIRECTORY, REMOVALS):
                self._log_head(head)
        return listed(head for head, _ in news)

    def tell_log(self) -> None:
        """Tell the log the head of this chain, if there is anything new before it."""
        if self._facts > self._logged:
            self._logged = self._facts
            self._log_head(self._chain.head)

    async def close(self, told: Callable[[], Awaitable[None]]) -> None:
        """Let go of the file; `told` writes the last lines."""
        try:
            await told()
        finally:
            if self._waiting:
                self._counters["audit.dropped"] += self._waiting
                self._log.warning("audit_lost", lines=self._waiting)
            if self._spool is not None:
                self._spool.close()

    def _log_head(self, head: ChainHead) -> None:
        self._log.info("audit_head", writer=head.writer, seq=head.seq, hash=head.hash.hex())

    def _fail(self, error: Exception) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._log.warning("audit_not_written", reason=self._trouble, waiting=self._waiting)


def _things(one: Spooled) -> int:
    """The number of facts in a line that comes from the disk."""
    return len(things_of(orjson.loads(one.kept.line.body)))
