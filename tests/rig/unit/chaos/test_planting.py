"""The mutants of the rig still fit the code that they change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.chaos.mutants import MUTANTS

ROOT = Path(__file__).parents[4]
PLANT = """
import json, os, traceback
import app.main
from tests.rig import planting
from tests.rig.chaos import event_mutants, mutants

def plant(name):
    find, members = planting.product_class, {}
    def remembered(path):
        kind = find(path)
        members.setdefault(kind, set(dir(kind)))
        return kind
    planting.product_class = mutants.product_class = event_mutants.product_class = remembered
    mutants.MUTANTS[name].plant()
    for kind, before in members.items():
        assert set(dir(kind)) == before, f"{kind.__name__} never had {set(dir(kind)) - before}"

found = {}
for name in mutants.MUTANTS:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            plant(name)
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as said:
        wrong = said.read()
    _, ended = os.waitpid(child, 0)
    found[name] = wrong or ended
print(json.dumps(found))
"""
"""Plants each in a process of its own, which is forked: the imports would take all of the time."""


@pytest.fixture(scope="module")
def planted() -> dict[str, str | int]:
    """The trouble with each mutant, or the end of its process: 0 where it was planted."""
    done = subprocess.run([sys.executable, "-c", PLANT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str | int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_can_be_planted(planted: dict[str, str | int], name: str) -> None:
    assert planted[name] == 0, planted[name]
