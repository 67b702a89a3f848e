"""The manifest of a backup: its files, with their sizes and checksums.

`manifest.json` is a JSON object: `format` (1), `written_by` (a version of Homing), `made_at` (RFC 3339), and `files`,
an object that has for each path `bytes` and `sha256`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from app import __version__
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

MANIFEST_FILE: Final = "manifest.json"
FORMAT: Final = 1
CHUNK: Final = 1024 * 1024
SYNCED_BYTES: Final = 8 * CHUNK
"""Bytes of a copy that are written before a sync: all at once would be in the way of a node that syncs meanwhile."""


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The size and the SHA-256 of a file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """All files of a backup, by their paths in it."""

    written_by: str
    made_at: str
    files: Mapping[str, FileDigest]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.size for one in self.files.values())


def copy_file(source: Path, target: Path) -> FileDigest:
    """Copy a file to where none is, durably, for its owner alone. ConfigurationError when it cannot be read."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        found = _read(source, lambda chunk: _put(written, chunk))
        written.flush()
        os.fsync(written.fileno())
    return found


def digest_of(file: Path) -> FileDigest:
    """The digest of a file as it is now; ConfigurationError when it cannot be read."""
    return _read(file, lambda _chunk: None)


def write_manifest(folder: Path, manifest: BackupManifest) -> None:
    """Put the manifest into a folder that has none."""
    files = {name: {"bytes": one.size, "sha256": one.sha256} for name, one in sorted(manifest.files.items())}
    facts = {"format": FORMAT, "written_by": manifest.written_by, "made_at": manifest.made_at, "files": files}
    with os.fdopen(os.open(folder / MANIFEST_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        json.dump(facts, written, indent=1)
        written.flush()
        os.fsync(written.fileno())


def read_manifest(folder: Path) -> BackupManifest:
    """The manifest of a backup; ConfigurationError when there is none that this version understands."""
    file = folder / MANIFEST_FILE
    try:
        found: Any = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ConfigurationError(f"{folder} is no backup: it has no {MANIFEST_FILE}") from None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise ConfigurationError(f"{file} is damaged: it is not JSON; take another backup") from None
    try:
        written_by, number = str(found["written_by"]), int(found["format"])
        if number > FORMAT:
            raise ConfigurationError(
                f"{folder} was written by {written_by} (format {number}); this is {__version__}, which reads up to "
                f"format {FORMAT}"
            )
        files = {_checked(path): _told(one) for path, one in found["files"].items()}
        return BackupManifest(written_by=written_by, made_at=str(found["made_at"]), files=files)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigurationError(f"{file} is damaged: it lists no files as backups do; take another backup") from None


def check_files(folder: Path, manifest: BackupManifest, read: Callable[[str], FileDigest] | None = None) -> None:
    """Raise ConfigurationError unless all files are as the manifest says; it names the first one that is not.

    `read` reads a file by its path in the folder, and may do more with it.
    """
    for name, told in manifest.files.items():
        if not (folder / name).is_file():
            raise ConfigurationError(f"{folder / name} is missing, and {MANIFEST_FILE} names it; take another backup")
        if (digest_of(folder / name) if read is None else read(name)) != told:
            raise ConfigurationError(
                f"{folder / name} is damaged: size or SHA-256 are not those of {MANIFEST_FILE}; take another backup"
            )


def _told(one: Any) -> FileDigest:  # noqa: ANN401 - any JSON value
    return FileDigest(int(one["bytes"]), str(one["sha256"]))


def _checked(name: str) -> str:
    """The path, which leads nowhere else than into the folder; ValueError."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(name)
    return name


def _put(written: BinaryIO, chunk: bytes) -> None:
    written.write(chunk)
    if written.tell() % SYNCED_BYTES < len(chunk):
        written.flush()
        os.fsync(written.fileno())


def _read(file: Path, take: Callable[[bytes], object]) -> FileDigest:
    size, hashed = 0, sha256()
    try:
        source = file.open("rb")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from None
    with source:
        while chunk := _chunk(source, file):
            take(chunk)
            hashed.update(chunk)
            size += len(chunk)
    return FileDigest(size, hashed.hexdigest())


def _chunk(source: BinaryIO, file: Path) -> bytes:
    try:
        return source.read(CHUNK)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from None
