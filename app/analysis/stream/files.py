"""Files that are there whole or not at all, and the same after a restart."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.core.errors import ConfigurationError


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file; a crash leaves the old one or the new one."""
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


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Only one process at a time; ConfigurationError when there is another. A kill frees it."""
    with (folder / "_lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(f"--out: another homing analyze --follow is at work in {folder}") from None
        yield
