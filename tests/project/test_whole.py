"""The note that all tests of the analysis passed: each file on which that depends makes it void, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.whole import NOTE, ROOT, decisive, digest, is_unchanged
from tests.analysis.conftest import ALWAYS

FILES = {
    "app/__init__.py": "",
    "app/analysis/__init__.py": "",
    "app/analysis/log.sql": "SELECT 1",
    "app/analysis/lake.py": "def late():\n    from app.core.ranges import Range",
    "app/cli/analyze.py": "import app.latency.arrow",
    "app/cli/submit.py": "from app.cli import main",
    "app/cli/__init__.py": "",
    "app/core/ranges.py": "from app.core import errors",
    "app/core/errors/__init__.py": "from app.core.errors.base import HomingError",
    "app/core/errors/base.py": "import os",
    "app/core/topics.py": "",
    "app/latency/arrow.py": "from pyarrow import Schema",
    "app/node.py": "from app.core.topics import share",
    "docs/examples/anomalies.toml": "",
    "requirements/analysis.txt": "",
    "requirements/spark.txt": "",
    "requirements/dev.txt": "",
    "tests/analysis/test_lake.py": "from tests.waiting import PATIENCE",
    "tests/waiting.py": "",
}
OTHERS = {"app/core/topics.py", "app/node.py", "requirements/dev.txt", "tests/waiting.py"}
"""What no test of the analysis depends on, but for its patience."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small one, of whose analysis all tests passed."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / NOTE).write_text(digest(tmp_path), "utf-8")
    assert is_unchanged(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_change_of_any_file_that_counts_makes_it_void(project: Path, name: str) -> None:
    (project / name).write_text(FILES[name] + "\n", "utf-8")
    assert is_unchanged(project) is (name in OTHERS)


def test_a_new_file_does_so_too(project: Path) -> None:
    (project / "app" / "analysis" / "more.py").touch()
    assert not is_unchanged(project)


def test_without_a_note_everything_has_changed(project: Path) -> None:
    (project / NOTE).unlink()
    assert not is_unchanged(project)


def test_what_the_analysis_stands_on_is_found() -> None:
    found = {path.as_posix() for path in decisive(ROOT)}
    assert found >= {"app/analysis/log.sql", "app/latency/schema.py", "app/core/errors/configuration.py"}
    assert not any(one.startswith(("app/api", "app/store", "app/mqtt")) for one in found)


def test_what_always_runs_is_there() -> None:
    assert all((ROOT / "tests" / "analysis" / name).is_file() for name in ALWAYS)
