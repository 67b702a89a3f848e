"""Every scenario of the rig in its short form: seconds instead of minutes, judged by what must never happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chaos.options import ChaosOptions
from app.chaos.run import run_scenario
from app.chaos.scenarios import SCENARIOS
from tests.services import require_programs

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def services() -> None:
    require_programs()


@pytest.mark.parametrize("name", SCENARIOS)
async def test_scenario(name: str, tmp_path: Path) -> None:
    result = await run_scenario(ChaosOptions(scenario=name, short=True, out=tmp_path))
    assert result.passed, (result.history.parent / "report.txt").read_text()
