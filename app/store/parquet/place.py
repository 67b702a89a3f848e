"""The place of the files: a folder of this machine, or whatever fsspec or Arrow knows by its URL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem
from pyarrow.fs import FileSystem

from app.core.clock import Clock
from app.core.errors import ConfigurationError, StoreUnavailableError

OBJECT_STORES: Final = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "memory"})
"""The stores in which a file is there as a whole or not at all, and nothing is renamed."""
_OF_ARROW: Final = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"})
TEMPORARY: Final = ".tmp"
ABANDONED_SECONDS: Final = 3600
"""After so long nobody writes a file any more that has no name yet."""


def check_place(url: str) -> None:
    """ConfigurationError when nobody knows such a place. Nothing is asked of it."""
    scheme = urlsplit(url).scheme
    if scheme not in {"", "file"} | _OF_ARROW | set(fsspec.available_protocols()):
        raise ConfigurationError(
            f"HOMING_EVENTS_COLD: scheme {scheme[:32]!a} is unknown; "
            "allowed: a folder, file://, s3://, gs://, abfs://, hdfs://, or another one that fsspec knows"
        )


class ObjectStore:
    """Every call may wait for a disk or a network, and raises StoreUnavailableError when it fails there."""

    def __init__(self, url: str, clock: Clock, new_secret: Callable[[], str]) -> None:
        check_place(url)
        self._url = url
        self._clock = clock
        self._new_secret = new_secret
        self._scheme = urlsplit(url).scheme or "file"
        self._found: tuple[Any, str] | None = None

    def put(self, path: str, data: memoryview) -> None:
        """The whole file, or none: durable and under its name when it returns."""
        files, root = self._place()
        full = f"{root}/{path}"
        try:
            if self._scheme == "file":
                _put_local(Path(full), data, self._new_secret()[:8])
            elif self._scheme in OBJECT_STORES:
                files.pipe_file(full, bytes(data))
            else:
                temporary = f"{_folder(full)}/.{_name(full)}.{self._new_secret()[:8]}{TEMPORARY}"
                files.makedirs(_folder(full), exist_ok=True)
                files.pipe_file(temporary, bytes(data))
                files.mv(temporary, full)
        except Exception as error:
            raise self._away(error) from error

    def open(self, path: str) -> CheckedFile:
        """A file to read; FileNotFoundError."""
        files, root = self._place()
        try:
            return CheckedFile(files.open(f"{root}/{path}", "rb", cache_type="none"), self._away)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise self._away(error) from error

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        files, root = self._place()
        try:
            files.rm_file(f"{root}/{path}")
        except FileNotFoundError:
            pass
        except Exception as error:
            if files.exists(f"{root}/{path}"):
                raise self._away(error) from error

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, of which there may be none."""
        return sorted(_name(one["name"]) for one in self._listed(path) if one["type"] == "directory")

    def names(self, path: str) -> list[str]:
        """The names of the files in a folder."""
        return sorted(_name(one["name"]) for one in self._listed(path) if one["type"] == "file")

    def tidy(self, path: str) -> None:
        """Delete what somebody began to write in a folder, long ago, and the folder where nothing is left."""
        _, root = self._place()
        if self._scheme != "file":
            return
        folder = Path(root) / path
        with suppress(OSError):
            for one in folder.glob(f".*{TEMPORARY}"):
                if self._clock.wall() - one.stat().st_mtime > ABANDONED_SECONDS:
                    one.unlink(missing_ok=True)
            folder.rmdir()

    def _listed(self, path: str) -> Iterator[dict[str, Any]]:
        files, root = self._place()
        try:
            files.invalidate_cache()
            yield from files.ls(f"{root}/{path}", detail=True)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._away(error) from error

    def _place(self) -> tuple[Any, str]:
        if self._found is None:
            try:
                if self._scheme == "file":
                    root = urlsplit(self._url).path if "://" in self._url else self._url
                    self._found = LocalFileSystem(), str(Path(root).absolute())
                elif self._scheme in _OF_ARROW:
                    arrow, path = FileSystem.from_uri(self._url)
                    self._found = ArrowFSWrapper(arrow), path.rstrip("/")
                else:
                    found, path = fsspec.core.url_to_fs(self._url)
                    self._found = found, path.rstrip("/")
            except Exception as error:
                raise self._away(error) from error
        return self._found

    def _away(self, error: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(f"the cold tier of events cannot be used now: {_said(error)}")


class CheckedFile:
    """A file that remembers whether reading it failed: what cannot be decoded else is damaged."""

    def __init__(self, file: Any, away: Any) -> None:  # noqa: ANN401 - fsspec has no types
        self._file = file
        self._away = away
        self.failed: StoreUnavailableError | None = None

    @property
    def closed(self) -> bool:
        """As files have it."""
        return bool(self._file.closed)

    def readable(self) -> bool:
        """As files have it."""
        return True

    def seekable(self) -> bool:
        """As files have it."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As files have it."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """As files have it."""
        return int(self._file.tell())

    def read(self, size: int = -1) -> bytes:
        """As files have it."""
        try:
            return bytes(self._file.read(size))
        except Exception as error:
            self.failed = self._away(error)
            raise self.failed from error

    def flush(self) -> None:
        """As files have it."""

    def close(self) -> None:
        """As files have it."""
        self._file.close()


def _put_local(path: Path, data: memoryview, attempt: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own for each try: whoever was frozen in the middle must not write into a file that is there.
    temporary = path.with_name(f".{path.name}.{attempt}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
