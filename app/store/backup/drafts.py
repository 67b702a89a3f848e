"""Folders that are there when they are whole, and not before."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.core.errors import ConfigurationError
from app.store.rocks.layout import LOCK_FILE, FolderLock, is_locked

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = ".homing-unfinished-"


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` when the block ends, and is deleted when it fails.

    What a process left unfinished beside the target when it was killed is deleted first. ConfigurationError when the
    target is there and not empty, or cannot be written.
    """
    target = target.absolute()
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigurationError(f"{target} is there already, and is no empty folder; name a new one")
        with suppress(FileExistsError):
            target.parent.mkdir(parents=True)
        _remove_unfinished(target.parent)
        draft = target.parent / f"{PREFIX}{target.name}"
        try:
            draft.mkdir(mode=0o700)
        except FileExistsError:
            raise ConfigurationError(f"{target} is being written by another process at this moment") from None
        lock = FolderLock(draft)
        try:
            lock.acquire()
            yield draft
            (draft / LOCK_FILE).unlink()
            _settle(draft)
            draft.replace(target)
            _sync(target.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            lock.release()
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror or error}") from None


def _remove_unfinished(parent: Path) -> None:
    for one in parent.glob(f"{PREFIX}*"):
        if not is_locked(one):
            shutil.rmtree(one, ignore_errors=True)


def _settle(draft: Path) -> None:
    for folder, _, _ in os.walk(draft):
        _sync(Path(folder))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every filesystem does
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
