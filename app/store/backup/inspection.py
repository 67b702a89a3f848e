"""Looks at a folder of `homing up` that nobody uses, or at a backup of one, and changes nothing."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.core.errors import ConfigurationError, DirectoryError, DirectoryUnavailableError
from app.store.backup.manifest import MANIFEST_FILE, check_files, read_manifest
from app.store.data_folder import DIRECTORY, STORE
from app.store.engine import check_directory_file, check_store_folder
from app.store.rocks.layout import is_locked, read_layout

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class DataFolderFacts:
    """The facts about each part in words, and what is wrong with it in a sentence."""

    seen: dict[str, str] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    in_use: bool = False
    free_bytes: int = 0


def inspect_data_folder(path: Path) -> DataFolderFacts:
    """Return what the folder is like. Blocks while it reads all of a backup."""
    facts = DataFolderFacts()
    if _layout(path, facts):
        facts.free_bytes = shutil.disk_usage(path).free
        facts.in_use = is_locked(path) or is_locked(path / STORE)
        if (path / MANIFEST_FILE).exists():
            _manifest(path, facts)
        if not facts.in_use and (path / STORE).exists():
            _store(path / STORE, facts)
        if (path / DIRECTORY).exists():
            _directory(path / DIRECTORY, facts)
    return facts


def _layout(path: Path, facts: DataFolderFacts) -> bool:
    try:
        found = read_layout(path)
        read_layout(path / STORE)
    except ConfigurationError as error:
        facts.troubles["layout"] = str(error)
        return False
    if not found:
        facts.troubles["layout"] = f"{path} is no folder of homing up"
        return False
    facts.seen["layout"] = f"{found['layout']}, begun by {found.get('written_by', 'an unknown version')}"
    return True


def _manifest(path: Path, facts: DataFolderFacts) -> None:
    try:
        manifest = read_manifest(path)
        check_files(path, manifest)
    except ConfigurationError as error:
        facts.troubles["manifest"] = str(error)
    else:
        facts.seen["manifest"] = f"a backup of {manifest.made_at}: {len(manifest.files)} files are as they were written"


def _store(path: Path, facts: DataFolderFacts) -> None:
    try:
        facts.seen["store"] = f"opens, with {check_store_folder(path)} tables"
    except ConfigurationError as error:
        facts.troubles["store"] = str(error)


def _directory(file: Path, facts: DataFolderFacts) -> None:
    try:
        check_directory_file(file)
    except (DirectoryError, DirectoryUnavailableError) as error:
        facts.troubles["directory"] = str(error)
    else:
        facts.seen["directory"] = "is whole"
