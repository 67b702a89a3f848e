"""The port to the access directory: who there is, by what they are known, and what they may do.

No request of a caller waits for it: nodes decide from a snapshot of the `Document` (docs/adr/0033).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.core.access.changes import Change
from app.core.access.model import Document
from app.core.audit.chain import Author
from app.store.audit import AuditStore
from app.store.lifetime import Lifetime


class AccessDirectory(Lifetime, Protocol):
    """One document with one version, which grows by one with each change.

    Every method raises DirectoryUnavailableError when no answer came within the budget; every one but `migrate` and
    `close` raises SchemaTooOldError or SchemaTooNewError when the tables cannot be served, and says what to do.
    """

    async def migrate(self) -> bool:
        """Bring the tables to what this version writes; whether there was something to do.

        May be called by several processes at once: one does it, the others wait for it. It may take longer than the
        budget. Tables of a later version are left alone.
        """

    async def read(self, since: Document | None = None) -> Document:
        """All of it, as it was at one moment. Its entries come in the order of their identities.

        `since` is what an earlier read gave: devices that have not changed are taken from there.
        """

    async def version(self) -> int:
        """The version of what `read` would give."""

    @property
    def audit(self) -> AuditStore:
        """The audit, in the same database."""

    async def apply(
        self, changes: Sequence[Change], *, expected_version: int | None = None, author: Author | None = None
    ) -> int:
        """Make the changes in the order given, all or none; the new version. No changes make no version.

        With an `author` the audit gets a line of it in the same transaction.

        VersionConflictError when `expected_version` is given and is not the present one. EntryNotFoundError when what
        is removed or revoked is not on record. EntryConflictError when an entry names another that is not on record,
        when what is removed is still named, when a name, digest or identity is taken, or when a revoked credential
        would count again. InvalidInputError when a value cannot be kept. Each says which change it is about.
        """

    async def touch(self, used: Mapping[str, int]) -> None:
        """Note when credentials, by id, were last used, in microseconds. Makes no version.

        An earlier instant than the one on record changes nothing, nor does a credential that is not on record.
        """
