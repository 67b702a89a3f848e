"""Contract tests find every mistake planted on the way to several servers. Slow: `scripts/mutants`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.router.mutants import MUTANTS, VARIABLE

ROOT = Path(__file__).parents[3]
HANGS_SECONDS = 60
"""Within this time each of these tests is good on a machine that is busy: what hangs is found."""


@pytest.mark.mutants
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name: str) -> None:
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            f"--timeout={HANGS_SECONDS}",
            "-p",
            "tests.rig.router.mutants",
            f"tests/contract/{MUTANTS[name].test}",
        ],
        cwd=ROOT,
        env={**os.environ, VARIABLE: name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "1 failed" in found.stdout, found.stdout
