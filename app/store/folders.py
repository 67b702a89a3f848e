"""RocksDB folders that planes of a node share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.core.errors import ConfigurationError
from app.core.memory import TABLES_BYTES

if TYPE_CHECKING:
    from app.store.rocks.folder import RocksFolder


class Folders:
    """RocksDB folders, so that planes with one URL share one."""

    def __init__(self, tables_bytes: int = TABLES_BYTES) -> None:
        self.tables_bytes: Final = tables_bytes
        self._folders: dict[Path, RocksFolder] = {}

    def of(self, path: Path, setting: str, make: Callable[[], RocksFolder]) -> RocksFolder:
        """The folder, made by the first who asks; ConfigurationError where its library is missing."""
        place = path.resolve()  # a link may lead there, too
        known = self._folders.get(place)
        if known is not None:
            return known
        try:
            return self._folders.setdefault(place, make())
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"{setting}: {error.name} is not installed; rocks:// needs the extra homing[embedded]"
            ) from None
        except ConfigurationError as error:
            raise ConfigurationError(f"{setting}: {error}") from None
