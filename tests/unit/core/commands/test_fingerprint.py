"""The fingerprint of a command that a second person approves: it has all that the command would do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from app.core.commands.fingerprint import fingerprint_of
from tests.contract.store_backends import registration

HOUR = timedelta(hours=1)


def test_whom_it_replaces_is_part_of_what_is_approved() -> None:
    command = registration(held=HOUR, approval=HOUR).command(0, 0, held=True)
    assert command.hold is not None
    other = replace(command, hold=replace(command.hold, replaces="cover"))
    another = replace(command, hold=replace(command.hold, replaces="lamp"))
    assert len({fingerprint_of(one) for one in (command, other, another)}) == 3


def test_what_happens_while_it_waits_is_none() -> None:
    command = registration(held=HOUR, approval=HOUR).command(0, 0, held=True)
    assert command.hold is not None
    later = replace(command, hold=replace(command.hold, claims=3, given_back_at=7), home_node="node-z")
    assert fingerprint_of(later) == fingerprint_of(command)
