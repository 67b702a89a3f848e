"""The files beside a RocksDB in its folder: a lock that says who uses it, and one that says how it is laid out.

| file | content |
|---|---|
| `homing.lock` | locked while the folder is in use; the process id, written when it began, and whether it only copies |
| `layout.json` | JSON: layout, the version of Homing that wrote it, `node` and `session` of the node that uses it |

A folder of 0.2.0 has neither; it is laid out as layout 1 is.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from app import __version__
from app.core.cluster.identity import NodeIdentity
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAYOUT: Final = 1
"""The layout of a folder of this version."""
LOCK_FILE: Final = "homing.lock"
LAYOUT_FILE: Final = "layout.json"
_COPIES: Final = b"copies"


class FolderLock:
    """Held by one process at a time, and let go by the kernel when that ends. One that `copies` ends by itself soon."""

    def __init__(self, folder: Path, *, copies: bool = False) -> None:
        self._file: Final = folder / LOCK_FILE
        self._note: Final = b" ".join([b"%d" % os.getpid(), *([_COPIES] if copies else [])])
        self._held: int | None = None

    @property
    def is_held(self) -> bool:
        """True if this process has it."""
        return self._held is not None

    def acquire(self, wait: Callable[[str], None] | None = None) -> None:
        """Hold it from now on; ConfigurationError says who does.

        While that is somebody who copies the folder, `wait` is called with a sentence, and then it is tried again.
        """
        if self._held is not None:
            self.check_place()
            return
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(descriptor, wait)
        except BaseException:
            os.close(descriptor)
            raise
        with suppress(OSError):  # a full disk must not keep it from being opened for reading and dropping
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._note, 0)
        self._held = descriptor

    def _take(self, descriptor: int, wait: Callable[[str], None] | None) -> None:
        while not _is_taken(descriptor):
            who, copies = _owner(descriptor)
            if wait is None or not copies:
                raise ConfigurationError(f"{self._file.parent} is in use{who}; one process at a time can have it")
            wait(f"{self._file.parent} is being copied{who}")

    def check_place(self) -> None:
        """Raise ConfigurationError where another folder is in the place of the one that is held.

        So it is on a mount point whose disk has gone.
        """
        with suppress(FileNotFoundError):
            if self._held is None or os.path.samestat(os.fstat(self._held), self._file.stat()):
                return
        raise ConfigurationError(
            f"{self._file} is not the file any more that this process has locked; put the folder back that was there"
        )

    def release(self) -> None:
        """Let others have it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


def is_locked(folder: Path) -> bool:
    """True if some process has the folder at this moment."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def identity_of(folder: Path, new_secret: Callable[[], str]) -> NodeIdentity:
    """The node that keeps its commands in a folder, a new one if none does; ConfigurationError as `read_layout`."""
    found = read_layout(folder)
    if found.get("node") and found.get("session"):
        return NodeIdentity(str(found["node"]), str(found["session"]))
    return NodeIdentity(f"node-{new_secret()[:10]}", new_secret())


def begin_layout(folder: Path, identity: NodeIdentity | None) -> None:
    """Say how the folder is laid out, and who uses it; ConfigurationError if this version does not read it so."""
    found = read_layout(folder)
    if found and (identity is None or found.get("session") == identity.session):
        return
    if identity is not None and found.get("session"):
        raise ConfigurationError(f"{folder} was first used by another process just now; start this one again")
    facts = found or {"layout": LAYOUT, "written_by": __version__}
    if identity is not None:
        facts |= {"node": identity.node_id, "session": identity.session}
    _replace(folder, json.dumps(facts).encode())


def _replace(folder: Path, written: bytes) -> None:
    fresh = folder / f"{LAYOUT_FILE}.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(written)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / LAYOUT_FILE)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_layout(folder: Path) -> dict[str, Any]:
    """Return what the folder says of itself, nothing if it is not laid out yet; ConfigurationError if unreadable."""
    try:
        found: Any = json.loads((folder / LAYOUT_FILE).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder / LAYOUT_FILE} cannot be read: {error}") from None
    number = found.get("layout") if isinstance(found, dict) else None
    if not isinstance(number, int):
        raise ConfigurationError(f"{folder / LAYOUT_FILE} is damaged: it names no layout")
    if number > LAYOUT:
        raise ConfigurationError(
            f"{folder} was written by {found.get('written_by', 'a later version')} (layout {number}); "
            f"this is {__version__}, which reads up to layout {LAYOUT}"
        )
    return dict(found)


def _is_taken(descriptor: int) -> bool:
    """True if this process has the lock now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _owner(descriptor: int) -> tuple[str, bool]:
    """Return who has the lock, in words, and whether they copy the folder."""
    try:
        pid, _, note = os.pread(descriptor, 32, 0).partition(b" ")
        since = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC).isoformat(timespec="seconds")
        return f" by process {int(pid)} since {since}", note == _COPIES
    except (OSError, ValueError):
        return "", False
