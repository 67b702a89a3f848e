"""The folder of `homing up`, which has all that one node keeps.

| there | content |
|---|---|
| `homing.lock` | locked while a node uses the folder; its process id |
| `layout.json` | how the folder is laid out, and the version that began it |
| `store/` | commands, events, queues, webhooks: a RocksDB with a lock and a layout of its own |
| `access.db` | the access directory, if callers are asked for keys |
| `secrets/` | the key of the first administrator and the root of webhooks' secrets, mode 0600 |
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from app.core.errors import ConfigurationError
from app.store.rocks.layout import LAYOUT_FILE, LOCK_FILE, FolderLock, begin_layout, read_layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OF_THE_VOLUME: Final = "lost+found"
"""A folder that a volume may have of its own."""
_OURS: Final = {LOCK_FILE, LAYOUT_FILE, f"{LAYOUT_FILE}.new", OF_THE_VOLUME}
STORE: Final = "store"
DIRECTORY: Final = "access.db"
SECRETS: Final = "secrets"
_SQLITE: Final = b"SQLite format 3\0"
"""The bytes with which each file of SQLite begins, unless it is empty."""
_OF_A_STORE: Final = "CURRENT"
"""A file that each RocksDB has."""


class DataFolder:
    """A folder that this process has for itself until it ends."""

    def __init__(self, path: Path, wait: Callable[[str], None] | None = None) -> None:
        """Make the folder if there is none, and take it; ConfigurationError in a sentence when it cannot be had.

        While it is being copied, `wait` is called with a sentence again and again.
        """
        self.path: Final = path
        self._lock: Final = FolderLock(path)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check()
            read_layout(path)
            self._lock.acquire(wait)
            begin_layout(path, None)
        except OSError as error:
            self._lock.release()
            raise ConfigurationError(f"{path} cannot be used: {error.strerror or error}") from None

    def keep(self, name: Path, secret: str) -> bool:
        """Keep a secret in a file of its owner alone; False if the file is there already. ConfigurationError."""
        file = self.path / name
        if file.exists():
            return False
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            fresh = file.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
                written.write(f"{secret}\n")
                written.flush()
                os.fsync(written.fileno())
            fresh.replace(file)
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from None
        return True

    def release(self) -> None:
        """Let others have the folder."""
        self._lock.release()

    def _check(self) -> None:
        """Refuse what is not ours before anything is written into it."""
        found = {one.name for one in os.scandir(self.path)}
        if _OF_A_STORE in found:
            raise ConfigurationError(
                f"{self.path} is a store itself, as HOMING_STORE_URL names one; make a folder, and move this one "
                f"into it as `store`"
            )
        is_made_of_a_store = found - _OURS <= {STORE, DIRECTORY} and (self.path / STORE / _OF_A_STORE).exists()
        if LAYOUT_FILE not in found and found - _OURS and not is_made_of_a_store:
            raise ConfigurationError(
                f"{self.path} is not empty, and not a folder of homing up; name a new or empty one"
            )
        if DIRECTORY in found:
            with (self.path / DIRECTORY).open("rb") as directory:
                begins = directory.read(len(_SQLITE))
            if begins and begins != _SQLITE:
                raise ConfigurationError(
                    f"{self.path / DIRECTORY} is damaged: it is no SQLite database; put a copy of it in its place"
                )
