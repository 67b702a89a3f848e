"""Folders that are there when they are whole, and not before."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.core.errors import ConfigurationError
from app.store.backup.manifest import MANIFEST_FILE
from app.store.data_folder import OF_THE_VOLUME
from app.store.rocks.layout import LAYOUT_FILE, LOCK_FILE, FolderLock, is_locked

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = ".homing-unfinished-"
_LAST: Final = {LAYOUT_FILE, MANIFEST_FILE}
"""Without them nobody takes a folder for one of `homing up`, or for a backup."""


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` when the block ends, and is deleted when it fails.

    A volume that is mounted there stays, and is filled. What a process left unfinished beside the target, or in the
    volume, when it was killed is deleted first. ConfigurationError when the target is there and not empty, or cannot
    be written.
    """
    target = target.absolute()
    try:
        is_volume = target.is_mount()
        place = target if is_volume else target.parent
        with suppress(FileExistsError):
            place.mkdir(parents=True)
        _remove_unfinished(place)
        if target.exists() and not _is_empty(target):
            raise ConfigurationError(f"{target} is there already, and is no empty folder; name a new one")
        draft = place / f"{PREFIX}{target.name}"
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
            if is_volume:
                _move_into(target, draft)
            else:
                draft.replace(target)
            _sync(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            lock.release()
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror or error}") from None


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and all(one.name == OF_THE_VOLUME or one.name.startswith(PREFIX) for one in folder.iterdir())


def _move_into(folder: Path, draft: Path) -> None:
    """Move all of a draft, and at the end what makes the folder one of ours: nobody takes half of it for the whole."""
    for one in sorted(draft.iterdir(), key=lambda one: one.name in _LAST):
        if one.name in _LAST:
            _sync(folder)
        one.replace(folder / one.name)


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
