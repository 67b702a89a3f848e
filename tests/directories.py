"""Access directories that are made once for a worker and copied: to make one takes longer than most tests of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from app.core.access.changes import Change
from app.runtime.system import new_secret
from app.store.engine import open_directory
from tests.waiting import PATIENCE

_MADE: Final[dict[tuple[Change, ...], bytes]] = {}
"""The files of directories, by what is in them."""


async def put_directory(file: Path, changes: Sequence[Change]) -> None:
    """Put a directory in SQLite there, with an id of its own, and what these changes make."""
    wanted = tuple(changes)
    if wanted not in _MADE:
        _MADE[wanted] = await _made(wanted)
    file.touch(0o600)
    file.write_bytes(_MADE[wanted])
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE access_meta SET cluster_id = ?", (new_secret(),))


async def _made(changes: Sequence[Change]) -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "access.db"
        directory = open_directory(f"sqlite:///{file}", new_cluster_id=new_secret, budget=timedelta(seconds=PATIENCE))
        await directory.migrate()
        await directory.apply(changes)
        await directory.close()
        return file.read_bytes()
