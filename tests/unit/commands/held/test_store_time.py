"""Commands wait by the store's clock, and not by that of the node that looks at them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.access.ports import Everybody
from app.commands.held.held_judge import DeviceSigns, HeldJudge, Readiness
from app.commands.held.store_time import StoreTime
from app.core.clock import wall_us
from app.core.commands.command import Command, IfOffline, WaitReason
from app.store.holds import Waits
from app.store.memory.commands.store import MemoryStateStore
from app.store.rules import micros
from tests.contract.store_backends import ManualClock, registration

HOUR = timedelta(hours=1)
SKEWS = pytest.mark.parametrize("skew", [-HOUR, HOUR], ids=["behind", "ahead"])


class Welcoming:
    """An admission that has nothing against any command."""

    def ready_after(self, _profile: str) -> timedelta:
        return timedelta()

    def binds(self, _profile: str, _method: str) -> bool:
        return False

    async def admit(self, _request: object) -> SimpleNamespace:
        return SimpleNamespace(check=lambda: None)


class Node:
    """A node whose clock is wrong by `skew`, and a store."""

    def __init__(self, skew: timedelta) -> None:
        self.clock, self.of_store = ManualClock(), ManualClock()
        self.clock.ahead = skew.total_seconds()
        self.store = MemoryStateStore(self.of_store)
        self.time = StoreTime(self.clock, self.store)
        self.judge = HeldJudge(
            store=self.store,
            publisher=cast("Any", SimpleNamespace(connected=True)),
            admission=cast("Any", Welcoming()),
            may=lambda _command: None,
            renew=Everybody().renew,
            whereabouts=cast("Any", None),
            run_stands=cast("Any", None),
            time=self.time,
            now_us=lambda: wall_us(self.clock),
        )

    async def readiness(self, command: Command) -> Readiness:
        return await self.judge.judge(command, DeviceSigns(online=True, heard=True))


def held(**members: Any) -> Command:
    command = registration(held=HOUR, if_offline=IfOffline.HOLD).command(0, 0, held=True)
    assert command.hold is not None
    return replace(command, hold=replace(command.hold, **members))


@SKEWS
async def test_a_claim_that_was_undone_rests_as_long_on_every_node(skew: timedelta) -> None:
    node = Node(skew)
    await node.time.read()
    undone = held(claims=1, given_back_at=await node.store.now())
    assert await node.readiness(undone) is Readiness.WAITS
    node.clock.now += 2
    assert await node.readiness(undone) is Readiness.READY


async def test_a_claim_that_was_undone_rests_no_longer_as_the_clock_of_the_store_was_set_back() -> None:
    node = Node(timedelta())
    await node.time.read()
    undone = held(claims=1, given_back_at=await node.store.now() + micros(HOUR))
    assert await node.readiness(undone) is Readiness.READY
    barely_ahead = held(claims=1, given_back_at=await node.store.now() + 500)  # as well as a node knows that clock
    assert await node.readiness(barely_ahead) is Readiness.WAITS


@SKEWS
async def test_an_instant_before_which_nothing_is_sent_is_by_the_store_s_clock(skew: timedelta) -> None:
    node = Node(skew)
    await node.time.read()
    early = held(not_before=await node.store.date() + micros(timedelta(minutes=5)))
    assert await node.readiness(early) is Readiness.EARLY
    node.clock.now += 301
    assert await node.readiness(early) is Readiness.READY


@SKEWS
async def test_what_the_store_says_of_how_long_something_waits_is_so(skew: timedelta) -> None:
    """A node that is ahead would look again and again, and one that is behind minutes too late."""
    node = Node(skew)
    await node.time.read()
    for reason in WaitReason:
        at = Waits(reason, await node.store.now() + micros(timedelta(seconds=30)))
        assert node.judge.seconds_left(at) == pytest.approx(30)


async def test_a_date_is_the_clock_on_the_wall_of_a_store_that_was_set_ahead() -> None:
    node = Node(timedelta())
    node.of_store.ahead = HOUR.total_seconds()
    await node.time.read()
    assert node.time.date() - node.time.now() == micros(HOUR)


async def test_before_the_first_reading_the_node_s_own_clock_counts() -> None:
    node = Node(timedelta())
    assert not node.time.known
    assert node.time.now() == node.time.date() == wall_us(node.clock)
    await node.time.read()
    assert node.time.known
