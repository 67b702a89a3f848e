"""The port to the audit: lines of chains, kept as they were hashed, and the heads that were told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from app.core.audit import Columns, Head, Line


class Place(NamedTuple):
    """A line's place among all, by time. Pages go from the newest line backwards."""

    at_us: int
    writer: str
    seq: int


class AuditQuery(NamedTuple):
    """Which lines a reader wants; None is all."""

    since_us: int = 0
    who: str | None = None
    device: str | None = None
    tenant: str | None = None
    before: Place | None = None
    limit: int = 50


class Kept(NamedTuple):
    """A line, with what stands beside it so that it can be looked for."""

    line: Line
    columns: Columns


class AuditStore(Protocol):
    """Every method raises DirectoryUnavailableError when no answer came within the budget of the call."""

    async def append(self, lines: Sequence[Kept], facts: int) -> None:
        """Keep lines of one writer, in the order of their numbers, and their head, at which so many facts were told.

        Those that are kept already stay as they are: to say it again changes nothing.
        """

    async def heads(self) -> Sequence[tuple[Head, int]]:
        """The last head of each writer, and how many lines up to there tell facts; the latest first."""

    async def page(self, query: AuditQuery) -> Sequence[Kept]:
        """The newest lines first."""

    async def read(self, after: tuple[str, int], limit: int) -> Sequence[Kept]:
        """Lines by writer and number, after this one; to begin with, after ("", 0)."""
