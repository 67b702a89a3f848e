"""Every scenario of the rig in its short form: seconds instead of minutes, judged by what must never happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.rig.chaos.options import ChaosOptions
from app.rig.chaos.run import run_scenario
from app.rig.chaos.scenarios import SCENARIOS
from app.rig.chaos.stepped import MISSING, library
from tests.services import require_programs, without_program


@pytest.mark.parametrize("name", SCENARIOS)
async def test_scenario(name: str, tmp_path: Path) -> None:
    require_programs()
    if SCENARIOS[name].steps and library() is None:
        without_program(MISSING)
    result = await run_scenario(ChaosOptions(scenario=name, short=True, out=tmp_path))
    assert result.passed, (result.history.parent / "report.txt").read_text()
