"""The figures of a full box: each bound is filled, by what the node accepts, and what stands after it is more."""

from __future__ import annotations

from homing_rig.figures.full_box import full_box
from homing_rig.figures.kit import Figure, Findings


async def test_each_part_is_filled_and_the_node_serves_one_more() -> None:
    findings = Findings("", lambda _: None)
    await full_box(findings, memory=192, share=0.02)
    found = [one for one in findings.entries if isinstance(one, Figure)]
    assert [one.name.split(",")[0].removeprefix("memory with ") for one in found] == [
        "memory",
        "7 sessions of clients that are away",
        "118 retained messages",
        "212 messages of one byte that wait",
        "74 finished commands",
        "10 open commands",
        "3 callers that wait",
        "6 connections of clients",
        "memory at its peak",
        "a message of one more client",
    ]
    assert all(20 < one.value < 192 for one in found[:-1])
    assert findings.reached
