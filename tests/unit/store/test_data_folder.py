"""The folder of `homing up`: made, taken, refused, and its secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from app.store.data_folder import DataFolder
from app.store.rocks.layout import FolderLock


def test_it_is_made_and_is_the_same_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    first = DataFolder(path)
    assert first.keep(Path("secrets/x.key"), "one")
    assert not first.keep(Path("secrets/x.key"), "two"), "it is there already"
    first.release()
    again = DataFolder(path)
    again.release()
    assert (path / "secrets" / "x.key").read_text() == "one\n"
    modes = [(path / name).stat().st_mode & 0o777 for name in ("secrets/x.key", "secrets", ".")]
    assert modes == [0o600, 0o700, 0o700]


def test_a_start_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "homing.lock").write_text("4711")
    (tmp_path / "layout.json.new").write_text("{")
    (tmp_path / "lost+found").mkdir()
    DataFolder(tmp_path).release()
    assert json.loads((tmp_path / "layout.json").read_text())["layout"] == 1


def test_a_start_waits_for_whoever_copies_the_folder_and_for_nobody_else(tmp_path: Path) -> None:
    copying, told = FolderLock(tmp_path, copies=True), list[str]()

    def wait(sentence: str) -> None:
        told.append(sentence)
        if len(told) == 3:
            copying.release()

    copying.acquire()
    folder = DataFolder(tmp_path, wait)
    assert len(told) == 3
    assert told[0].startswith(f"{tmp_path} is being copied by process {os.getpid()} since ")
    with pytest.raises(ConfigurationError, match=f"is in use by process {os.getpid()} since"):
        DataFolder(tmp_path, wait)
    folder.release()
    copying.acquire()
    with pytest.raises(ConfigurationError, match="is in use by process"):
        DataFolder(tmp_path)
    copying.release()
    assert len(told) == 3


def foreign(path: Path) -> None:
    (path / "letter.txt").write_text("dear")


def store(path: Path) -> None:
    (path / "CURRENT").write_text("MANIFEST-1")
    (path / "layout.json").write_text('{"layout": 1}')


def newer(path: Path) -> None:
    (path / "layout.json").write_text('{"layout": 99, "written_by": "9.0.0"}')


def damaged(path: Path) -> None:
    (path / "layout.json").write_text("{")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (foreign, "is not empty, and not a folder of homing up"),
        (store, "is a store itself"),
        (newer, "was written by 9.0.0 (layout 99)"),
        (damaged, "cannot be read"),
    ],
)
def test_what_is_not_ours_is_refused_and_left_as_it_was(
    tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(tmp_path)
    before = {one.name: one.read_text() for one in tmp_path.iterdir()}
    with pytest.raises(ConfigurationError, match=said.replace("(", r"\(").replace(")", r"\)")):
        DataFolder(tmp_path)
    assert before.items() <= {one.name: one.read_text() for one in tmp_path.iterdir()}.items()


def test_one_that_is_in_use_says_by_whom_and_since_when(tmp_path: Path) -> None:
    first = DataFolder(tmp_path)
    with pytest.raises(ConfigurationError, match=r"is in use by process \d+ since 20\d\d-.*; one process at a time"):
        DataFolder(tmp_path)
    first.release()


def test_what_is_no_folder_gets_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used: File exists"):
        DataFolder(file)
    with pytest.raises(ConfigurationError, match="cannot be used: Not a directory"):
        DataFolder(file / "below")
    if Path("/proc/self").exists():
        with pytest.raises(ConfigurationError, match="cannot be used: No such file or directory"):
            DataFolder(Path("/proc/none"))


def test_a_store_that_was_moved_into_a_new_folder_is_taken_with_a_directory_or_without(tmp_path: Path) -> None:
    """As the refusal of a store itself says; the folder was refused then as one of somebody else."""
    for name, others in (("store-alone", ()), ("with-directory", ("access.db",))):
        folder = tmp_path / name
        (folder / "store").mkdir(parents=True)
        (folder / "store" / "CURRENT").write_text("MANIFEST-000005\n")
        for one in others:
            (folder / one).write_bytes(b"SQLite format 3\0")
        DataFolder(folder).release()
        assert (folder / "layout.json").exists()


def test_a_folder_with_more_than_a_store_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "CURRENT").write_text("MANIFEST-000005\n")
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigurationError, match="is not empty"):
        DataFolder(tmp_path)
