"""Commands beside a queue, in a short form: all are answered, and all events are settled at the rate that was asked."""

from __future__ import annotations

from homing_rig.figures.kit import Figure, Findings
from homing_rig.figures.queue_commands import beside
from tests.services import require_programs


async def test_commands_are_answered_beside_a_queue_that_keeps_to_its_rate() -> None:
    require_programs()
    findings = Findings("beside", lambda _line: None)
    await beside(findings, rate=500, commands=5, rounds=1, seconds=2, nodes=1)
    figures = {one.name: one for one in findings.entries if isinstance(one, Figure)}
    assert 0 < figures["events settled a second"].value <= 500
    assert figures["commands that failed"].value == 0
    assert figures["p99 of commands, calm"].value > 0
    assert figures["p99 beside to p99 calm"].most == 1.5
    (note,) = [one for one in findings.entries if isinstance(one, str)]
    assert "10 calm" in note
