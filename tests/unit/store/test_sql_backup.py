"""A copy of the access directory in SQLite, beside those who use it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.core.errors import ConfigurationError, DirectoryUnavailableError
from app.store.engine import back_up_directory

ROOT = Path(__file__).parents[3]


@pytest.fixture
def in_use(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database in WAL, as of a node that runs."""
    with closing(sqlite3.connect(tmp_path / "access.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")
        yield connection


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'access.db'}"


def rows(file: Path) -> list[int]:
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [n for (n,) in connection.execute("SELECT n FROM t")]


def test_what_is_committed_is_in_the_copy_and_nobody_else_reads_it(in_use: sqlite3.Connection, tmp_path: Path) -> None:
    in_use.execute("BEGIN IMMEDIATE")
    in_use.execute("INSERT INTO t VALUES (2)")
    back_up_directory(url(tmp_path), tmp_path / "copy.db")
    in_use.execute("COMMIT")
    assert rows(tmp_path / "copy.db") == [1]
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.unfinished"))


def test_whoever_uses_the_directory_goes_on_using_the_same_files(in_use: sqlite3.Connection, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app.cli", "access", "backup", str(tmp_path / "copy.db")]
    environment = {"HOMING_ACCESS_URL": url(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}
    before = {path: path.stat().st_ino for path in tmp_path.glob("access.db*")}
    assert len(before) == 3
    subprocess.run(command, check=True, cwd=tmp_path, env=environment)
    assert {path: path.stat().st_ino for path in tmp_path.glob("access.db*")} == before
    in_use.execute("INSERT INTO t VALUES (2)")
    assert rows(tmp_path / "access.db") == [1, 2]


def test_an_older_backup_is_never_overwritten(in_use: sqlite3.Connection, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("older")
    with pytest.raises(ConfigurationError, match=r"copy\.db is there already"):
        back_up_directory(url(tmp_path), tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "older"
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnavailableError, match="cannot be copied"):
        back_up_directory(url(tmp_path), tmp_path / "copy.db")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(in_use: sqlite3.Connection, tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnavailableError, match="nowhere"):
        back_up_directory(url(tmp_path), tmp_path / "nowhere" / "copy.db")


def test_postgresql_has_a_tool_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pg_dump"):
        back_up_directory("postgresql://homing@127.0.0.1/homing", tmp_path / "copy.db")
