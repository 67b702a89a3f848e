"""`homing doctor --data`: what it says of folders that are well, in use, damaged, and of backups."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.store.backup.backups import back_up
from app.store.data_folder import DIRECTORY, STORE, DataFolder
from app.store.rocks.folder import COMMANDS, RocksFolder
from app.store.rocks.sessions import RocksSessions
from tests.unit.cli.conftest import Homing


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def make(store: Path) -> None:
        sessions = RocksSessions(RocksFolder(store, COMMANDS))
        await sessions.start()
        await sessions.write({b"cdock": b"a"})
        await sessions.close()

    path = tmp_path / "data"
    DataFolder(path).release()
    asyncio.run(make(path / STORE))
    with closing(sqlite3.connect(path / DIRECTORY)) as directory:
        directory.execute("CREATE TABLE t (n)")
        directory.commit()
    return path


def told(homing: Homing, path: Path) -> tuple[int, dict[str, tuple[str, str]]]:
    code, out, err = homing("doctor", "--data", str(path), "--json")
    assert err == ""
    return code, {one["subject"]: (one["level"], one["seen"]) for one in json.loads(out)["diagnoses"]}


def test_a_folder_that_is_well(homing: Homing, data: Path) -> None:
    before = {one: one.read_bytes() for one in data.rglob("*") if one.is_file()}
    code, found = told(homing, data)
    assert code == 0
    assert found["store"] == ("ok", "opens, with 2 tables")
    assert found["directory"] == ("ok", "is whole")
    assert found["layout"][1].startswith("1, begun by 0.")
    assert found["room"][1].endswith("GiB free")
    assert "lock" not in found
    assert {one: one.read_bytes() for one in data.rglob("*") if one.is_file()} == before, "nothing is changed"


def test_a_folder_in_use_is_not_opened(homing: Homing, data: Path) -> None:
    folder = DataFolder(data)
    code, found = told(homing, data)
    folder.release()
    assert code == 0
    assert found["lock"] == ("warn", "in use, so its store is not opened")
    assert "store" not in found


def test_a_backup_is_read_whole(homing: Homing, data: Path, tmp_path: Path) -> None:
    back_up(data, tmp_path / "backup", secrets=False, wall=0)
    code, found = told(homing, tmp_path / "backup")
    assert code == 0
    assert found["manifest"][0] == "ok"
    assert found["manifest"][1].startswith("a backup of 1970-01-01T00:00:00+00:00: ")
    (tmp_path / "backup" / DIRECTORY).write_bytes(b"x")
    code, found = told(homing, tmp_path / "backup")
    assert code == 1
    assert found["manifest"][0] == "fail"
    assert f"{DIRECTORY} is damaged: size or SHA-256 are not those of manifest.json" in found["manifest"][1]


def broken_store(data: Path) -> None:
    (data / STORE / "CURRENT").write_text("nonsense\n")


def broken_directory(data: Path) -> None:
    (data / DIRECTORY).write_bytes(b"nonsense" * 1000)


def newer(data: Path) -> None:
    (data / STORE / "layout.json").write_text('{"layout": 9, "written_by": "9.0.0"}')


def not_ours(data: Path) -> None:
    (data / "layout.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "subject", "said"),
    [
        (broken_store, "store", "cannot be opened: "),
        (broken_directory, "directory", "cannot be read: file is not a database"),
        (newer, "layout", "was written by 9.0.0 (layout 9); this is"),
        (not_ours, "layout", "is no folder of homing up"),
    ],
)
def test_what_is_wrong_is_a_failure_and_a_sentence(
    homing: Homing, data: Path, spoil: Callable[[Path], None], subject: str, said: str
) -> None:
    spoil(data)
    code, found = told(homing, data)
    assert code == 1
    assert found[subject][0] == "fail"
    assert said in found[subject][1]
