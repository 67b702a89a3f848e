"""The order in which scripts/test hands out files."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import COMPUTING, WAITING

TESTS = Path(__file__).parents[1]


def test_every_folder_has_its_place() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert sorted((*COMPUTING, *WAITING)) == sorted(folders)
