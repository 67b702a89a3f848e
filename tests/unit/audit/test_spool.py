"""Files of lines that wait on the disk, and two processes in one folder."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from app.audit.spool import Spool, left_behind, open_spool


def test_a_file_that_is_being_made_is_not_one_that_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    taken: list[Spool] = []

    def lock_late(file: int, how: int) -> None:
        """Another process looks in the moment between the making of a file and its lock."""
        monkeypatch.setattr(fcntl, "flock", lock)
        taken.extend(left_behind(tmp_path))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    mine = open_spool(tmp_path, "node-a/1")
    assert taken == []
    assert list(left_behind(tmp_path)) == []
    mine.close()
    assert list(tmp_path.iterdir()) == []
