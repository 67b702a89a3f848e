"""Access directories whose tables were made once for a worker: a migration takes longer than most tests of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from app.runtime.system import new_secret
from app.store.engine import open_directory
from tests.waiting import PATIENCE

_MIGRATED: Final[list[bytes]] = []
"""The file of an empty directory, once one was made."""


async def put_directory(file: Path) -> None:
    """Put a directory in SQLite there, with a name of its own and nothing in it."""
    if not _MIGRATED:
        with TemporaryDirectory() as folder:
            first = Path(folder) / "first.db"
            directory = open_directory(
                f"sqlite:///{first}", new_cluster_id=new_secret, budget=timedelta(seconds=PATIENCE)
            )
            await directory.migrate()
            await directory.close()
            _MIGRATED.append(first.read_bytes())
    file.touch(0o600)
    file.write_bytes(_MIGRATED[0])
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE access_meta SET cluster_id = ?", (new_secret(),))
