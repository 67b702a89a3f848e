"""A copy of a directory in SQLite, made while nodes and verbs go on using it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from app.core.addresses import split_address, sqlite_file
from app.core.errors import ConfigurationError, DirectoryUnavailableError

SECONDS: Final = 10.0
"""The time for which the copy waits for a database that is locked."""


def back_up(url: str, target: Path) -> None:
    """Write one moment of the directory into a new file that its owner alone may read.

    SQLite itself reads and writes both files, so that no lock of a node is lost. ConfigurationError when there is a
    file already, or the directory is no SQLite file; DirectoryUnavailableError when it cannot be read or written.
    """
    parts = split_address(url)
    if parts.scheme != "sqlite":
        raise ConfigurationError("the access directory is in PostgreSQL: back it up with pg_dump")
    back_up_file(Path(sqlite_file(parts)), target)


def back_up_file(source: Path, target: Path) -> None:
    """Do as `back_up` does, with the file itself."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            _copy(source, unfinished)
            os.link(unfinished, target)  # unlike a rename, it never takes the place of an older backup
        finally:
            unfinished.unlink()
    except FileExistsError as error:
        name = error.filename2 or error.filename
        raise ConfigurationError(f"{name} is there already; name a file that is not") from None
    except OSError as error:
        raise DirectoryUnavailableError(f"{target}: {error.strerror}") from None
    except sqlite3.Error as error:
        raise DirectoryUnavailableError(f"{source} cannot be copied: {error}") from None


def check_file(file: Path) -> None:
    """Read all of a directory in SQLite, and change nothing; DirectoryUnavailableError says what is wrong with it."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=SECONDS)) as connection:
            found = [str(one) for (one,) in connection.execute("PRAGMA quick_check(1)")]
    except sqlite3.Error as error:
        raise DirectoryUnavailableError(f"{file} cannot be read: {error}") from None
    if found != ["ok"]:
        raise DirectoryUnavailableError(f"{file} is damaged: {found[0]}")


def _copy(source: Path, target: Path) -> None:
    uri = f"{source.absolute().as_uri()}?mode=rw"  # which makes no database where there is none
    with closing(sqlite3.connect(uri, uri=True, timeout=SECONDS, isolation_level=None)) as connection:
        connection.execute("VACUUM INTO ?", (str(target),))
    with target.open("rb") as written:
        os.fsync(written.fileno())
