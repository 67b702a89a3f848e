"""The diagnoses of `homing doctor --data`: one folder, and no node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from app.cli.diagnosis import LEAST_FREE_BYTES, CheckLevel, Diagnosis
from app.store.backup.inspection import inspect_data_folder

if TYPE_CHECKING:
    from pathlib import Path

_ADVICE: Final = {
    "layout": "Name the folder of homing up, or run the version of Homing that wrote it.",
    "manifest": "Restore another backup.",
    "store": "Make a new folder from a backup: homing restore DIR --data NEW.",
    "directory": "Take the file out of a backup: homing restore DIR --data NEW.",
}


def about_data_folder(path: Path) -> Iterator[Diagnosis]:
    """Diagnose who uses the folder, its layout, room, store, directory and, in a backup, the manifest."""
    facts = inspect_data_folder(path)
    for name, seen in facts.seen.items():
        yield Diagnosis(CheckLevel.OK, "folder", name, seen, "")
    for name, trouble in facts.troubles.items():
        yield Diagnosis(CheckLevel.FAIL, "folder", name, trouble, _ADVICE[name])
    if "layout" in facts.troubles:
        return
    if facts.in_use:
        advice = "Stop the node to have the store looked at, or run homing doctor without --data."
        yield Diagnosis(CheckLevel.WARN, "folder", "lock", "in use, so its store is not opened", advice)
    short = facts.free_bytes < LEAST_FREE_BYTES
    level, advice = (CheckLevel.WARN, "Make room: without it, commands are refused.") if short else (CheckLevel.OK, "")
    yield Diagnosis(level, "folder", "room", f"{facts.free_bytes / 2**30:.1f} GiB free", advice)
