"""The bench of what a command costs beside other versions."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from homing_rig.bench.command_cost import NO_OP, NOW, measure, ratios_text, render


def test_ratios_are_of_pairs() -> None:
    assert ratios_text([1.0, 2.0, 3.0, 40.0], [2.0, 2.0, 2.0, 2.0]) == "1.250 [1.000, 1.500]"
    assert ratios_text([1.0], [2.0]) == "0.500 [0.500, 0.500]"


@pytest.mark.long
async def test_each_version_and_the_no_op_take_their_turns() -> None:
    found = await measure({"same": Path(__file__).parents[3], NOW: None}, rounds=2, seconds=0.2)
    assert [(side.name, len(side.turns)) for side in found] == [("same", 2), (NOW, 2), (NO_OP, 2)]
    assert all(rate > 0 for side in found for rate in side.rates())
    written = StringIO()
    Console(file=written, width=150).print(render(found))
    assert "1.000 [1.000, 1.000]" in written.getvalue()
