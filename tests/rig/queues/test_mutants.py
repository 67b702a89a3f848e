"""Tests find every mistake planted into queues. Slow: `scripts/mutants`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.queues.mutants import MUTANTS, VARIABLE

ROOT = Path(__file__).parents[3]


@pytest.mark.mutants
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name: str) -> None:
    options = ["-q", "-x", "--timeout=120", "-p", "tests.rig.queues.mutants"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"tests/{MUTANTS[name].test}"],
        cwd=ROOT,
        env={**os.environ, VARIABLE: name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "1 failed" in found.stdout, found.stdout
