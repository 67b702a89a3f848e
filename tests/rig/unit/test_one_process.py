"""The figures of one process, on a small scale: each part measures something, and a backup that fails is told."""

from __future__ import annotations

import pytest

from homing_rig.figures import box_backup
from homing_rig.figures.broker import SmallBox
from homing_rig.figures.kit import Figure, FigureError, Findings
from homing_rig.figures.one_process import one_process
from tests.services import find_binary


async def test_each_part_measures_something(monkeypatch: pytest.MonkeyPatch) -> None:
    find_binary("mosquitto")
    monkeypatch.setattr(box_backup, "SETTLE_SECONDS", 0.0)
    findings = Findings("", lambda _: None)
    await one_process(findings, readers=300, messages=20, commands=50, seconds=0.5, backup=1, rate=100)
    found = {one.name: one.value for one in findings.entries if isinstance(one, Figure)}
    assert list(found) == [
        "first start to the first command that is answered",
        "CPU per message that nobody keeps, homing",
        "CPU per message that nobody keeps, mosquitto",
        "the first to the second",
        "CPU per delivery of the fan-out, homing",
        "CPU per delivery of the fan-out, mosquitto",
        "the first to the second, of the fan-out",
        "catching up",
        "a one-way command, one at a time",
        "p99 of that",
        "one-way commands a second, 50 at once",
        "start after a kill, with 100 commands, to the first one that is answered",
        "p99 from PUBLISH to PUBACK, kept, alone",
        "the same beside the backup",
        "the second to the first, of the backup",
    ]
    assert found["catching up"] > 0
    assert found["the same beside the backup"] > 0


async def test_a_backup_that_fails_is_no_figure() -> None:
    with SmallBox() as box:
        (box.folder / "backup" / "something").mkdir(parents=True)
        with pytest.raises(FigureError, match=r"the backup failed: .* is no empty folder"):
            await box_backup._back_up(box.folder / "data", box.folder / "backup")
