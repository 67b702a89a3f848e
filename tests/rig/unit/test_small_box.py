"""The figures of a small box: how the node is held down, and that what is measured is the node."""

from __future__ import annotations

import asyncio
import os
import resource

import pytest

from homing_rig.figures import small_box as figures
from homing_rig.figures.broker import SmallBox
from homing_rig.figures.kit import Figure, FigureError, Findings
from tests.services import find_binary


@pytest.mark.long
async def test_it_measures_a_node_that_has_one_core_and_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    find_binary("prlimit", "util-linux")
    find_binary("taskset", "util-linux")
    monkeypatch.setattr(figures, "SETTLE_SECONDS", 0.0)
    held: set[tuple[int, int]] = set()
    resident = figures.resident

    def look(box: SmallBox) -> float:
        held.add((resource.prlimit(box.pid, resource.RLIMIT_DATA)[0], len(os.sched_getaffinity(box.pid))))
        return resident(box)

    monkeypatch.setattr(figures, "resident", look)
    findings = Findings("", lambda _: None)
    await figures.small_box(findings, memory=400, connections=5, seconds=0.5)
    found = {one.name: one.value for one in findings.entries if isinstance(one, Figure)}
    assert held == {(400 * figures.MIB, 1)}
    assert found["messages of QoS 1 a second, kept"] > 0
    assert found["memory, idle, second start"] > found["memory, idle, without access (--open)"] > 20
    assert found["memory after them"] < 400


def test_the_node_has_one_core_and_no_more_memory() -> None:
    find_binary("prlimit", "util-linux")
    find_binary("taskset", "util-linux")
    with SmallBox(within=figures._within(400)) as box:
        assert resource.prlimit(box.pid, resource.RLIMIT_DATA)[0] == 400 * figures.MIB
        assert len(os.sched_getaffinity(box.pid)) == 1
        assert 20 < figures.resident(box) < 400


def test_a_system_without_the_programs_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FigureError, match="taskset and prlimit are not installed"):
        asyncio.run(figures.small_box(Findings("", lambda _: None), memory=512, connections=1, seconds=1))
