"""The few files that Spark has no writer for: summary.json, timeouts.toml and report.html, each by its name.

On an object store they go by fsspec, with the credentials of the environment, as Hadoop's S3A takes them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from app.core.errors import ConfigurationError


def put_text(folder: str, name: str, text: str) -> None:
    """Write or replace a file; a reader sees the old or the new one. ConfigurationError when it cannot be written."""
    with _sentence(folder):
        if (local := local_path(folder)) is not None:
            local.mkdir(parents=True, exist_ok=True)
            temporary = local / f".{name}.tmp"
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(local / name)
        else:
            files, path = _elsewhere(folder)
            files.pipe_file(f"{path}/{name}", text.encode())


def take_away(folder: str, name: str) -> None:
    """Remove a file, if it is there."""
    with _sentence(folder):
        if (local := local_path(folder)) is not None:
            (local / name).unlink(missing_ok=True)
        else:
            files, path = _elsewhere(folder)
            if files.exists(f"{path}/{name}"):
                files.rm_file(f"{path}/{name}")


def local_path(place: str) -> Path | None:
    """The folder of this machine that a path or a `file:` URL names; None for another URL."""
    if place.startswith("file:"):
        return Path(unquote(urlsplit(place).path))
    return None if "://" in place else Path(place)


def _elsewhere(folder: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

    files, path = url_to_fs(folder.replace("s3a://", "s3://", 1))
    return files, path.rstrip("/")


@contextmanager
def _sentence(folder: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ImportError, ValueError) as error:
        raise ConfigurationError(f"--out {folder}: {error}") from error
