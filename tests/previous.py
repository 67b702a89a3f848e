"""Versions of Homing out of the history of this repository, such as one that runs beside this one in an update."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

COMMIT = "1ef6d1fe8188e0865869a53ba0db1b4382708687"
"""The last one of 0.1.0."""
ROOT = Path(__file__).parents[1]


@contextmanager
def previous_version(commit: str = COMMIT) -> Iterator[Path]:
    """A folder with the `app` of a version; the test is skipped where there is no history, as in a shallow clone."""
    try:
        archive = subprocess.run(["git", "archive", commit, "app"], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("an earlier version cannot be had here: there is no git")
    if archive.returncode:
        pytest.skip("an earlier version cannot be had here: this is a shallow clone, or no clone at all")
    with TemporaryDirectory(prefix="homing-earlier-") as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder)


def speak(folder: Path, *words: str, said: object = None) -> Any:  # noqa: ANN401 - what it prints
    """Run tests/contract/speak.py with the version in this folder."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "contract" / "speak.py"), *words],
        input=json.dumps(said),
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
