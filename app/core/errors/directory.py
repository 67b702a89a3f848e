"""Errors about the access directory: who there is, and who may do what.

DirectoryError               about the access directory: who there is, and who may do what
├── EntryNotFoundError
├── EntryConflictError       a change contradicts what else is on record
├── VersionConflictError     the directory has changed since the change was decided
├── PreconditionFailedError  an entry is not what the caller takes it for
├── NoDirectoryError         this node has none
└── SchemaError              its tables are of a version that this one cannot serve
    ├── SchemaTooOldError
    └── SchemaTooNewError
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class DirectoryError(HomingError):
    """Base of errors about the access directory; nothing was changed."""


class EntryNotFoundError(DirectoryError):
    """The subject of a change is not on record."""


class EntryConflictError(DirectoryError):
    """A change contradicts what else is on record; says which change, and what it contradicts."""


class VersionConflictError(DirectoryError):
    """The directory has changed since the change was decided: read it again, and decide again."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"the access directory is at version {found}, and the change was made for version {expected}")
        self.expected = expected
        self.found = found


class PreconditionFailedError(DirectoryError):
    """An entry is not what the caller takes it for; says what it is."""


class NoDirectoryError(DirectoryError):
    """This node has no access directory; says what is possible without one."""


class SchemaError(DirectoryError):
    """The tables of the directory are of a version that this version of Homing cannot serve."""


class SchemaTooOldError(SchemaError):
    """They have to be migrated first, or there are none yet."""


class SchemaTooNewError(SchemaError):
    """They were migrated by a later version, which this one does not understand."""
