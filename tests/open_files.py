"""The files that a process holds open, as Linux tells."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_GONE = " (deleted)"


def deleted_files(pid: int, name: str) -> list[str]:
    """Files that the process holds open and that nobody else finds any more, of those that begin with this name."""
    return [one for one in _open_files(pid) if one.endswith(_GONE) and Path(one).name.startswith(name)]


def _open_files(pid: int) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(link.readlink()))
    return sorted(found)
