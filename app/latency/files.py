"""The place of the log: a folder of this machine or a URL, and how a finished file gets there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import fsspec
import pyarrow as pa
from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

from app.core.errors import ConfigurationError

OBJECT_STORES: Final = frozenset({"s3", "gs", "gcs", "abfs", "abfss"})
"""The stores in which a file is there as a whole or not at all, and nothing can be renamed."""
_OF_ARROW: Final = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"})
TEMPORARY: Final = ".tmp"


class LogFile(Protocol):
    """A file that is being written; nobody finds it before `publish`."""

    @property
    def sink(self) -> pa.NativeFile:
        """The stream to write to."""

    @property
    def in_memory(self) -> bool:
        """True if all of it stays in memory until `publish`."""

    def publish(self) -> None:
        """Close it, make it durable, and give it its name."""

    def discard(self) -> None:
        """Forget it. Raises nothing."""


class FileStore(Protocol):
    """A folder of the log."""

    def create(self, path: str) -> LogFile:
        """Begin the file of this path below the folder."""

    def tidy(self, is_ours: Callable[[str], bool]) -> None:
        """Remove what an earlier start left half written; `is_ours` tells by the name it was to get."""


class LocalFileStore:
    """A folder of this machine, or one that is mounted."""

    def __init__(self, folder: Path) -> None:
        """ConfigurationError when it cannot be written to."""
        self._folder = folder
        probe = folder / f".{os.getpid()}{TEMPORARY}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ConfigurationError(
                f"HOMING_LATENCY_LOG_DIR: {folder} cannot be written: {error.strerror or error}"
            ) from None

    def create(self, path: str) -> LogFile:
        """See `FileStore`."""
        return _LocalFile(self._folder / path)

    def tidy(self, is_ours: Callable[[str], bool]) -> None:
        """See `FileStore`."""
        for path in self._folder.glob(f"date=*/hour=*/.*{TEMPORARY}"):
            if is_ours(path.name[1 : -len(TEMPORARY)]):
                path.unlink(missing_ok=True)


class _LocalFile:
    in_memory = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}{TEMPORARY}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.sink = pa.OSFile(str(self._temporary), "wb")

    def publish(self) -> None:
        self.sink.close()
        _to_disk(self._temporary)
        self._temporary.rename(self._path)
        _to_disk(self._path.parent)

    def discard(self) -> None:
        with suppress(OSError):
            self.sink.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RemoteFileStore:
    """A URL that Arrow or fsspec knows. Connects with the first file, not at the start: it may be away then."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._scheme = urlsplit(url).scheme
        self._found: tuple[FileSystem, str] | None = None

    def create(self, path: str) -> LogFile:
        """See `FileStore`."""
        filesystem, folder = self._filesystem()
        return _RemoteFile(filesystem, f"{folder}/{path}", by_name=self._scheme not in OBJECT_STORES)

    def tidy(self, is_ours: Callable[[str], bool]) -> None:
        """See `FileStore`. There is nothing to tidy: a file is only sent when it is complete."""

    def _filesystem(self) -> tuple[FileSystem, str]:
        if self._found is None:
            if self._scheme in _OF_ARROW:
                filesystem, folder = FileSystem.from_uri(self._url)
            else:
                remote, folder = fsspec.core.url_to_fs(self._url)
                filesystem = PyFileSystem(FSSpecHandler(remote))
            self._found = filesystem, folder.rstrip("/")
        return self._found


class _RemoteFile:
    in_memory = True

    def __init__(self, filesystem: FileSystem, path: str, *, by_name: bool) -> None:
        self._filesystem = filesystem
        self._path = path
        self._by_name = by_name
        self.sink = pa.BufferOutputStream()

    def publish(self) -> None:
        whole = self.sink.getvalue()
        folder, _, name = self._path.rpartition("/")
        if not self._by_name:
            self._put(self._path, whole)
            return
        self._filesystem.create_dir(folder, recursive=True)
        temporary = f"{folder}/.{name}{TEMPORARY}"
        self._put(temporary, whole)
        self._filesystem.move(temporary, self._path)

    def discard(self) -> None:
        self.sink.close()

    def _put(self, path: str, whole: pa.Buffer) -> None:
        with self._filesystem.open_output_stream(path) as stream:
            stream.write(whole)


def open_place(url: str) -> FileStore:
    """The folder or URL; ConfigurationError says what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return LocalFileStore(Path(parts.path if parts.scheme else url).absolute())
    known = _OF_ARROW | set(fsspec.available_protocols())
    if parts.scheme not in known:
        raise ConfigurationError(
            f"HOMING_LATENCY_LOG_DIR: scheme {parts.scheme[:32]!a} is unknown; "
            "allowed: a folder, s3://, gs://, abfs://, hdfs://, or another one that fsspec knows"
        )
    return RemoteFileStore(url)
