"""The port to the audit: lines of chains, kept as they were hashed, and the heads that were told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from app.core.audit.chain import Author, ChainHead, ChainLine, Columns

SPAN_US: Final = 1_000_000
"""The time that one line may tell of, in microseconds."""


class AuditPosition(NamedTuple):
    """The position of an entry among all, by time. Pages go from the newest backwards."""

    at_us: int
    writer: str
    seq: int
    part: int
    """The number of the fact in its line, from 0."""


class AuditQuery(NamedTuple):
    """The query of a reader; None is all."""

    since_us: int = 0
    who: str | None = None
    device: str | None = None
    tenant: str | None = None
    before: AuditPosition | None = None
    limit: int = 50


class AuditEntry(NamedTuple):
    """One fact out of a line."""

    place: AuditPosition
    hash: bytes
    """The hash of the line."""
    body: bytes
    """Its JSON; what is kept, where that cannot be read."""


class AuditSlice(NamedTuple):
    """Entries that were found, the newest first."""

    entries: Sequence[AuditEntry]
    before: AuditPosition | None
    """The place where the next page begins, also when this one is short; None: there is no more."""


class StoredLine(NamedTuple):
    """A line, with the columns by which it is looked for."""

    line: ChainLine
    columns: Columns


class AuditStore(Protocol):
    """Every method raises DirectoryUnavailableError when no answer came within the budget of the call."""

    async def append(self, lines: Sequence[StoredLine], facts: int) -> None:
        """Keep lines of one writer, in the order of their numbers, and their head, at which so many facts were told.

        Those that are kept already stay as they are: to say it again changes nothing.
        """

    async def heads(self) -> Sequence[tuple[ChainHead, int]]:
        """The last head of each writer, and how many lines up to there tell facts; the latest first."""

    async def page(self, query: AuditQuery) -> AuditSlice:
        """The newest first. Pages that look for something may be short, as the effort of one is bounded."""

    async def read(self, after: tuple[str, int], limit: int) -> Sequence[StoredLine]:
        """Lines by writer and number, after this one; to begin with, after ("", 0)."""

    async def remove(self, before_us: int, author: Author) -> int:
        """Remove the lines at the beginning of each chain that tell only of what was before; how many.

        A line of the writer REMOVALS, whose own stay, tells where each chain begins now.
        """
