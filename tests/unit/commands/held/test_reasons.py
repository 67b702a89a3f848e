"""The reasons for which a command is still held, as far as a node can tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.access.ports import Everybody
from app.commands.held.held_judge import HeldJudge
from app.core.commands.command import CommandState, IfOffline
from app.core.errors import InvalidInputError
from app.core.events.presence import Whereabouts
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.store.holds import HoldStore
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import ManualClock, registration


class Refusing:
    """An admission that has something against all commands."""

    async def admit(self, _request: object) -> None:
        raise InvalidInputError("profile", "is unknown")

    def ready_after(self, _profile: str) -> timedelta:
        return timedelta()


async def nobody_knows(_device: str) -> Whereabouts:
    return Whereabouts(None)


def judge_of(store: HoldStore | None) -> HeldJudge:
    return HeldJudge(
        store=cast("Any", store),
        publisher=cast("Any", SimpleNamespace(connected=True)),
        admission=cast("Any", Refusing()),
        may=lambda _command: None,
        renew=Everybody().renew,
        whereabouts=nobody_knows,
        run_stands=cast("Any", None),
        time=cast("Any", None),
        now_us=lambda: 0,
    )


async def test_of_a_claim_that_was_undone_it_names_no_reason_that_may_be_wrong() -> None:
    """The record does not say why: the broker may have had no subscriber, or the node no broker."""
    command = registration(held=timedelta(hours=1), if_offline=IfOffline.HOLD).command(0, 0, held=True)
    assert command.state is CommandState.HELD
    assert command.hold is not None
    undone = replace(command, hold=replace(command.hold, claims=3, given_back_at=1))
    first, second = await judge_of(None).why(undone)
    assert "claims: 3; the last one was undone" in first
    assert "or the node that had claimed it could not hand it over" in first
    assert "profile: is unknown" in second


@pytest.mark.parametrize(
    ("order", "waits", "says"),
    [
        (LaneOrder.FIFO, 0, "after what is in flight there or came before it"),
        (LaneOrder.FIFO, 2, "as number 3 in line, after command {1}"),
        (LaneOrder.FIFO_ACK, 1, "as number 2 in line, after command {0}"),
        (LaneOrder.LIFO, 2, "after what is in flight there or came before it"),
        (LaneOrder.LIFO, 0, "as number 3 in line, after command {1}"),
        (LaneOrder.PARALLEL, 2, "after what is in flight there or came before it"),
    ],
)
async def test_who_stands_before_it_in_its_lane_is_named(order: LaneOrder, waits: int, says: str) -> None:
    clock = ManualClock()
    store, lane = MemoryStateStore(clock), CommandLane("flight", order)
    line = []
    for _ in range(3):
        wanted = registration(held=timedelta(hours=1), lane=lane)
        await store.register(wanted)
        clock.now += 0.001
        line.append(wanted.command_id)
    (command,) = await store.get([line[waits]])
    assert command is not None
    first, _ = await judge_of(store).why(command)
    assert first.endswith(says.format(*line))
