"""Scenarios of the rig in their short forms: seconds instead of minutes, judged by what must never happen.

They are in four files, as each worker of scripts/test takes whole files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from homing_rig.chaos.options import ChaosOptions
from homing_rig.chaos.run import run_scenario
from homing_rig.chaos.scenarios import SCENARIOS
from homing_rig.chaos.stepped import MISSING, library
from tests.services import require_programs, without_program

OF_EVENTS: Final = tuple(name for name in SCENARIOS if name.startswith("E"))
OF_HELD: Final = ("R30", "R31", "FORGET", "FREEZE", "LANES", "RUN", "PARTITION")
OF_STORE: Final = (
    *("R7", "R8", "R9", "R10", "R11", "R11-ALONE", "R11-CLUSTER", "R12"),
    *("R24", "R25", "R26", "R27", "R28"),
)
OF_COMMANDS: Final = tuple(name for name in SCENARIOS if name not in {*OF_EVENTS, *OF_HELD, *OF_STORE})


async def check_short_form(name: str, out: Path, *, access: bool = False, up: bool = False) -> None:
    """Run a scenario in its short form, and fail with its report unless it passes."""
    require_programs()
    if SCENARIOS[name].steps and library() is None:
        without_program(MISSING)
    options = ChaosOptions(scenario=name, short=True, forked=True, access=access, up=up, out=out)
    result = await run_scenario(options)
    assert result.passed, (result.history.parent / "report.txt").read_text()
