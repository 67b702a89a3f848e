"""The port of what is declared over the log: one set of documents with one version, beside the log itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class DocumentChange(NamedTuple):
    """A document that is written under a name, or deleted (None)."""

    name: str
    document: bytes | None


class Declarations(NamedTuple):
    """The documents by name, and their version: all of them, or (not `whole`) what has changed, None: deleted."""

    version: int
    documents: Mapping[str, bytes | None]
    whole: bool = True


class Declared(Protocol):
    """StoreUnavailableError when the engine does not answer."""

    async def version(self) -> int:
        """Grows with each change; 0 where nothing was ever declared."""

    async def read(self, since: int = -1) -> Declarations:
        """All that is declared. Of an engine that knows it, what has changed since this version."""

    async def apply(self, changes: Sequence[DocumentChange], expected: int) -> int | None:
        """Write these together, and return the new version; None where the version is not the expected one."""
