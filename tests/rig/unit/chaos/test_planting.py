"""The mutants of the rig still fit the code that they change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.chaos.mutants import MUTANTS

ROOT = Path(__file__).parents[4]
PLANT = """
from tests.rig import planting
from tests.rig.chaos import mutants
find, members = planting.product_class, {{}}
def remembered(path):
    kind = find(path)
    members.setdefault(kind, set(dir(kind)))
    return kind
planting.product_class = mutants.product_class = remembered
mutants.MUTANTS[{name!r}].plant()
for kind, before in members.items():
    assert set(dir(kind)) == before, f"{{kind.__name__}} never had {{set(dir(kind)) - before}}"
"""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_can_be_planted(name: str) -> None:
    planted = subprocess.run(
        [sys.executable, "-c", PLANT.format(name=name)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert planted.returncode == 0, planted.stderr
