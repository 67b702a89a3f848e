"""Folders of this machine and of object stores: small files are read and written here, large ones by Spark.

Both take the credentials of the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from app.core.errors import ConfigurationError


class LogFolder:
    """A folder, by a path or a URL. ConfigurationError says in a sentence why it cannot be read or written."""

    def __init__(self, name: str) -> None:
        self.name = name.rstrip("/") or name
        scheme, there, rest = self.name.partition("://")
        self.local: Path | None = None
        """The folder of this machine that it is."""
        if self.name.startswith("file:"):
            self.local = Path(unquote(urlsplit(self.name).path)).absolute()
        elif not there:
            self.local = Path(self.name).absolute()
        if self.local is not None:
            self.files, root = LocalFileSystem(), str(self.local)
        else:
            scheme = {"s3a": "s3", "abfss": "abfs"}.get(scheme, scheme)  # Hadoop's name -> Arrow's
            with self._sentence():
                self.files, root = FileSystem.from_uri(f"{scheme}://{rest}")
        self._root = root.rstrip("/")

    @property
    def url(self) -> str:
        """As Hadoop names it: `s3://` is s3a, and a path of this machine has a scheme, whatever the default one is."""
        return f"file://{self.local}" if self.local else re.sub("^s3://", "s3a://", self.name)

    def path(self, inside: str) -> str:
        """The path of a file in it, as `files` has it."""
        return f"{self._root}/{inside}"

    def find(self, folder: str = "", ending: str = "", *, hidden: bool = False) -> dict[str, FileInfo]:
        """The files in a folder of it and below: their paths in it. Hidden names (`.`, `_`) only on demand."""
        root = self.path("")
        with self._sentence():
            selected = FileSelector(self.path(folder).rstrip("/"), recursive=True, allow_not_found=True)
            found = self.files.get_file_info(selected)
        files = [one for one in found if one.type is FileType.File and one.path.endswith(ending)]
        inside = {one.path[len(root) :]: one for one in sorted(files, key=lambda one: one.path)}
        return {path: one for path, one in inside.items() if hidden or not re.search(r"(^|/)[._]", path)}

    def read(self, inside: str) -> bytes:
        """The content of a file."""
        with self._sentence(), self.files.open_input_file(self.path(inside)) as file:
            return bytes(file.read())

    def write(self, inside: str, content: bytes) -> None:
        """Write or replace a file: a reader, and a crash, see the old one or the new one."""
        with self._sentence():
            if self.local is not None:
                write_whole(self.local / inside, content)
                return
            with self.files.open_output_stream(self.path(inside)) as file:
                file.write(content)

    def remove(self, inside: str) -> None:
        """Remove a file, if it is there."""
        with self._sentence():
            if self.files.get_file_info(self.path(inside)).type is FileType.File:
                self.files.delete_file(self.path(inside))

    def move(self, inside: str, to: str) -> None:
        """Give a file another name; an object store copies it for that."""
        with self._sentence():
            self.files.create_dir(self.path(to).rpartition("/")[0], recursive=True)
            self.files.move(self.path(inside), self.path(to))

    def folders(self, inside: str) -> list[str]:
        """The folders in a folder: their paths in it, hidden ones as well."""
        with self._sentence():
            found = self.files.get_file_info(FileSelector(self.path(inside).rstrip("/"), allow_not_found=True))
        return [one.path[len(self.path("")) :] for one in found if one.type is FileType.Directory]

    def remove_folder(self, inside: str) -> None:
        """Remove a folder with all that is in it."""
        with self._sentence():
            self.files.delete_dir(self.path(inside))

    @contextmanager
    def _sentence(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ImportError, ValueError) as error:
            raise ConfigurationError(f"{self.name}: {error}") from error


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Only one process at a time; ConfigurationError when there is another. A kill frees it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "_lock").open("wb")
    except OSError as error:
        raise ConfigurationError(f"--out: {error}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(f"--out: another homing analysis is at work in {folder}") from None
        yield


def no_pattern(url: str) -> str:
    """The URL as Spark is told where it takes braces, brackets and stars for a pattern."""
    return re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", url)


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file of this machine, durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    rename(temporary, path)


def rename(path: Path, to: Path) -> None:
    """Rename durably, over what is there."""
    path.replace(to)
    for folder in {path.parent, to.parent}:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def as_json(value: Any) -> bytes:  # noqa: ANN401 - whatever is JSON
    """For people, and for `git diff`."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
