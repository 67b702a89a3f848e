"""The reasons for which a command is still held, as far as a node can tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from app.commands.held.held_judge import HeldJudge
from app.core.commands.command import CommandState, IfOffline
from app.core.errors import InvalidInputError
from app.core.events.presence import Whereabouts
from tests.contract.store_backends import registration


class Refusing:
    """An admission that has something against all commands."""

    async def admit(self, _request: object) -> None:
        raise InvalidInputError("profile", "is unknown")

    def ready_after(self, _profile: str) -> timedelta:
        return timedelta()


async def nobody_knows(_device: str) -> Whereabouts:
    return Whereabouts(None)


async def test_of_a_claim_that_was_undone_it_names_no_reason_that_may_be_wrong() -> None:
    """The record does not say why: the broker may have had no subscriber, or the node no broker."""
    command = registration(held=timedelta(hours=1), if_offline=IfOffline.HOLD).command(0, 0, held=True)
    assert command.state is CommandState.HELD
    assert command.hold is not None
    undone = replace(command, hold=replace(command.hold, claims=3, given_back_at=1))
    judge = HeldJudge(
        store=cast("Any", None),
        publisher=cast("Any", SimpleNamespace(connected=True)),
        admission=cast("Any", Refusing()),
        may=lambda _command: None,
        whereabouts=nobody_knows,
        time=cast("Any", None),
        now_us=lambda: 0,
    )
    first, second = await judge.why(undone)
    assert "claims: 3; the last one was undone" in first
    assert "or the node that had claimed it could not hand it over" in first
    assert "profile: is unknown" in second
