"""Every scenario of the rig in its short form: seconds instead of minutes, judged by what must never happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing_rig.chaos.options import ChaosOptions
from homing_rig.chaos.run import run_scenario
from homing_rig.chaos.scenarios import SCENARIOS
from homing_rig.chaos.stepped import MISSING, library
from homing_rig.guard import DATABASE
from tests.services import require_programs, without_program


@pytest.mark.parametrize("name", SCENARIOS)
async def test_scenario(name: str, tmp_path: Path) -> None:
    require_programs()
    if SCENARIOS[name].steps and library() is None:
        without_program(MISSING)
    result = await run_scenario(ChaosOptions(scenario=name, short=True, forked=True, out=tmp_path))
    assert result.passed, (result.history.parent / "report.txt").read_text()


@pytest.mark.parametrize("name", ["R3", pytest.param("R18", marks=pytest.mark.long)])
async def test_scenario_with_access(name: str, tmp_path: Path) -> None:
    """Nodes that ask for keys and keep an audit are killed, and leave nothing behind."""
    require_programs()
    result = await run_scenario(ChaosOptions(scenario=name, short=True, forked=True, access=True, out=tmp_path))
    assert result.passed, (result.history.parent / "report.txt").read_text()
    assert (tmp_path / f"{name}-1" / DATABASE).exists()
