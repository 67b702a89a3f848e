"""The rig finds every planted mistake. Slow, so not part of an ordinary run: `scripts/mutants`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from homing_rig.chaos.options import ChaosOptions
from homing_rig.chaos.run import run_scenario
from tests.rig.chaos.mutants import MUTANTS

pytestmark = pytest.mark.mutants


@pytest.mark.parametrize("name", MUTANTS)
async def test_mutant_is_found(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    schedule = None
    if mutant.faults:
        schedule = tmp_path / "schedule"
        schedule.write_text(mutant.faults)
    options = ChaosOptions(
        scenario=mutant.scenario,
        short=True,
        commands=mutant.commands,
        schedule=schedule,
        out=tmp_path / "out",
        node_command=(sys.executable, "-m", "tests.rig.chaos.mutants", name, "serve"),
        node_settings=mutant.settings,
    )
    result = await run_scenario(options)
    missed = {one.figure.name for one in result.figures if not one.passed}
    found = missed | {kind for kind, count in result.checked.counts.items() if count}
    assert found & set(mutant.found_as), (found, (result.history.parent / "report.txt").read_text())
