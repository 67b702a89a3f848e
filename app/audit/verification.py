"""Reads the whole audit, and says what was done to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from app.core.audit.chain import REMOVALS, ChainFault, ChainHead, Verifier, columns_of, heads_of, removed_of
from app.store.audit import AuditStore, StoredLine

BATCH: Final = 100
"""Lines of one call: one that tells of many things has some 80 KB."""
MOST_FAULTS: Final = 1_000
"""The faults that a verification tells, the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The numbers of things that were read, and the faults that were found."""

    writers: int
    lines: int
    heads: int
    """The number of heads to which the chains had to lead."""
    faults: tuple[ChainFault, ...]
    """The first ones."""

    @property
    def empty(self) -> bool:
        """True if there was nothing to verify, and nothing that says that there should be."""
        return not self.lines and not self.faults


def why_empty(changes: int) -> str:
    """The sentence about an audit that is empty, by the number of changes of its directory."""
    return (
        f"the audit is empty, there is nothing to verify; the directory has had {changes} changes, and each leaves a "
        "line unless HOMING_AUDIT=off: if it was on, somebody has emptied the audit"
    )


async def verify(store: AuditStore, heads: Iterable[ChainHead] = ()) -> Verification:
    """Read everything twice: once for what the chains tell of each other. `heads` are those of logs.

    DirectoryUnavailableError. Lines that are written or removed meanwhile do no harm.
    """
    logged, starts = list(heads), await _starts(store)
    while True:
        found = await _verify(store, logged, starts)
        now = await _starts(store)
        if not found.faults or now == starts:
            return found
        starts = now  # lines were removed meanwhile


async def _starts(store: AuditStore) -> dict[str, ChainHead]:
    """Return the heads at which chains begin whose first lines were removed."""
    found: dict[str, ChainHead] = {}
    async for kept in all_lines(store, after=(REMOVALS, 0)):
        if kept.line.writer != REMOVALS:
            break
        for head in removed_of(kept.line.body):
            if head.writer not in found or head.seq > found[head.writer].seq:
                found[head.writer] = head
    return found


async def _verify(store: AuditStore, logged: list[ChainHead], starts: Mapping[str, ChainHead]) -> Verification:
    told = [*logged, *[head for head, _ in await store.heads()]]
    async for kept in all_lines(store):
        told += heads_of(kept.line.body) if b'"seen"' in kept.line.body else ()
    by_writer: dict[str, list[ChainHead]] = {}
    for head in told:
        by_writer.setdefault(head.writer, []).append(head)
    faults: list[ChainFault] = []
    lines, writers = 0, 0
    verifier: Verifier | None = None
    async for kept in all_lines(store):
        writer = kept.line.writer
        if verifier is None or verifier.writer != writer:
            faults += [] if verifier is None else verifier.end()
            verifier = Verifier(writer, by_writer.pop(writer, ()), starts.get(writer))
            writers += 1
        faults += verifier.read(kept.line)
        if columns_of(kept.line.body) != kept.columns:
            faults.append(ChainFault(writer, kept.line.seq, "what stands beside the line is not what it says"))
        lines += 1
    faults += [] if verifier is None else verifier.end()
    for writer, missing in sorted(by_writer.items()):
        faults += Verifier(writer, missing, starts.get(writer)).end()
    return Verification(writers=writers, lines=lines, heads=len(set(told)), faults=tuple(faults[:MOST_FAULTS]))


async def all_lines(store: AuditStore, after: tuple[str, int] = ("", 0)) -> AsyncIterator[StoredLine]:
    """Every line, by writer and number."""
    while batch := await store.read(after, BATCH):
        for kept in batch:
            yield kept
        after = (batch[-1].line.writer, batch[-1].line.seq)
        await asyncio.sleep(0)
