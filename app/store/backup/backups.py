"""Takes backups of the folder of `homing up`, and makes new folders from them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app import __version__
from app.core.errors import ConfigurationError
from app.store.backup.drafts import staged
from app.store.backup.manifest import (
    BackupManifest,
    FileDigest,
    check_files,
    copy_file,
    digest_of,
    read_manifest,
    write_manifest,
)
from app.store.backup.source import still_store
from app.store.data_folder import DIRECTORY, SECRETS, STORE
from app.store.engine import back_up_directory_file, check_store_folder, forget_packet_ids
from app.store.rocks.checkpoints import CHECKPOINT, SOCKET
from app.store.rocks.layout import LAYOUT_FILE, LOCK_FILE, read_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_A_PROCESS: Final = {LOCK_FILE, LAYOUT_FILE, SOCKET, CHECKPOINT, "LOCK"}
"""The files of a store beside its data; its layout is taken by itself, as no checkpoint has it."""


def back_up(data: Path, target: Path, *, secrets: bool, wall: float) -> BackupManifest:
    """Copy a folder, in use or not, to a new one; `wall` is seconds since 1970.

    ConfigurationError when it cannot be read or written; StoreUnavailableError and DirectoryUnavailableError when the
    node or the directory cannot be asked now. Then nothing is left of it.
    """
    store = data / STORE
    if not read_layout(data) or not read_layout(store):
        raise ConfigurationError(f"{data} is no folder of homing up that has a store; name it with --data")
    with staged(target) as draft:
        files: dict[str, FileDigest] = {}
        # A command may name a key that the directory of before has not; that a key is there too early would be worse.
        if (data / DIRECTORY).exists():
            back_up_directory_file(data / DIRECTORY, draft / DIRECTORY)
            files[DIRECTORY] = digest_of(draft / DIRECTORY)
        with still_store(data, store) as still:
            for file in _files(still):
                files[f"{STORE}/{file.name}"] = copy_file(file, draft / STORE / file.name)
        found = [Path(LAYOUT_FILE), Path(STORE) / LAYOUT_FILE]
        if secrets:
            found += sorted(one.relative_to(data) for one in (data / SECRETS).glob("*.key"))
        for name in found:
            files[str(name)] = copy_file(data / name, draft / name)
        check_store_folder(draft / STORE)
        made_at = datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds")
        manifest = BackupManifest(written_by=__version__, made_at=made_at, files=files)
        write_manifest(draft, manifest)
    return manifest


def restore(backup: Path, target: Path) -> BackupManifest:
    """Make a new folder from a backup; ConfigurationError when the backup is damaged or the folder is not new.

    The copy lives on by itself: no packet id of before counts, so QoS 2 is at-least-once across a restore.
    """
    manifest = read_manifest(backup)
    with staged(target) as draft:
        for folder in (backup, backup / STORE):
            if not read_layout(folder):
                raise ConfigurationError(f"{folder} has no {LAYOUT_FILE}, so it is no backup of a folder of homing up")
        check_files(backup, manifest, lambda name: copy_file(backup / name, draft / name))
        forget_packet_ids(draft / STORE)
    return manifest


def _files(store: Path) -> Iterator[Path]:
    """The files of a store that belong to its data."""
    for one in sorted(store.iterdir()):
        if one.name not in _OF_A_PROCESS and not one.name.startswith("LOG") and one.is_file():
            yield one
