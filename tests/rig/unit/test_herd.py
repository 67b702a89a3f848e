"""Devices that come back at once, in its short form: everything is sent once and in order, however fast."""

from __future__ import annotations

from homing_rig.figures.herd import HerdBooks, herd
from homing_rig.figures.kit import Figure, Findings
from tests.services import require_programs


async def test_a_small_herd_gets_everything_once_and_in_order() -> None:
    require_programs()
    findings = Findings("herd", lambda _line: None)
    await herd(findings, devices=40, commands=3, pace=10, rate=5, calm=1, patience=120)
    figures = {one.name: one for one in findings.entries if isinstance(one, Figure)}
    assert figures["devices that got theirs in another order, or twice"].value == 0
    assert figures["commands that no device got"].value == 0


def test_books_tell_another_order_and_what_came_twice() -> None:
    books = HerdBooks()
    for device, number in (("a", 0), ("a", 1), ("b", 1), ("b", 0), ("c", 0), ("c", 0)):
        books.note(device, number)
    assert books.disordered() == 2
    assert len(books.gaps()) == 3
