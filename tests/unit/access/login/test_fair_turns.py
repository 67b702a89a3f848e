"""Addresses take turns: whoever asks for much waits behind themselves."""

from __future__ import annotations

import asyncio

import pytest

from app.access.login.fair_turns import MOST_WAITING, FairTurns
from app.core.errors import CapacityError, NodeDrainingError
from tests.waiting import PATIENCE, eventually, turns


class Desk:
    """A desk with turns: it keeps who had one, in order; each turn lasts until `go` is set."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.line = FairTurns(most)
        self.served: list[str] = []
        self.go = asyncio.Event()
        self.inside = 0

    async def visit(self, address: str) -> None:
        async with self.line.take(address):
            self.inside += 1
            assert self.inside == 1
            self.served.append(address)
            await self.go.wait()
            self.inside -= 1

    async def come(self, *addresses: str) -> list[asyncio.Task[None]]:
        """In this order."""
        tasks = [asyncio.create_task(self.visit(one)) for one in addresses]
        await turns()
        return tasks


async def test_a_line_of_many_does_not_stand_before_somebody_from_elsewhere() -> None:
    desk = Desk()
    tasks = await desk.come(*["flood"] * 20, "ann", "bob", "ann")
    desk.go.set()
    await asyncio.gather(*tasks)
    assert desk.served[:6] == ["flood", "flood", "ann", "bob", "flood", "ann"]
    assert desk.served.count("flood") == 20


async def test_when_too_many_wait_the_last_of_the_longest_line_is_sent_away() -> None:
    desk = Desk(4)
    tasks = await desk.come(*["flood"] * 5)
    (ann,) = await desk.come("ann")
    assert isinstance(tasks[-1].exception(), CapacityError)
    (more,) = await desk.come("flood")
    assert isinstance(more.exception(), CapacityError)
    desk.go.set()
    await asyncio.gather(ann, *tasks[:-1])
    assert desk.served == ["flood", "flood", "ann", "flood", "flood"]


async def test_of_as_many_addresses_as_may_wait_the_newest_is_sent_away() -> None:
    desk = Desk(3)
    tasks = await desk.come("inside", "a", "b", "c", "d")
    assert isinstance(tasks[-1].exception(), CapacityError)
    desk.go.set()
    await asyncio.gather(*tasks[:-1])
    assert desk.served == ["inside", "a", "b", "c"]


@pytest.mark.parametrize("gone", [(1,), (2,), (1, 2, 3), (0,), (0, 1)])
async def test_who_goes_away_holds_nobody_up(gone: tuple[int, ...]) -> None:
    desk = Desk()
    tasks = await desk.come("a", "b", "b", "c", "d")
    for one in gone:
        tasks[one].cancel()
    if 0 in gone:
        desk.inside = 0
    desk.go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [task.cancelled() for task in tasks] == [number in gone for number in range(5)]
    (last,) = await desk.come("e")
    await last


async def test_when_there_are_no_more_turns_nobody_waits_for_one() -> None:
    desk = Desk()
    inside, *waiting = await desk.come("a", "b", "b", "c")
    waiting[0].cancel()
    desk.line.close()
    (late,) = await desk.come("d")
    told = await asyncio.gather(*waiting, late, return_exceptions=True)
    assert [type(one) for one in told] == [asyncio.CancelledError, *[NodeDrainingError] * 3]
    desk.go.set()
    await inside
    assert desk.served == ["a"]


async def test_a_turn_that_was_given_in_the_moment_of_the_end_is_none() -> None:
    desk = Desk()
    first, second = await desk.come("a", "b")
    desk.line._next()  # as when the first one's rest is over
    desk.line.close()
    desk.go.set()
    await first
    with pytest.raises(NodeDrainingError):
        await second


async def test_who_goes_away_in_the_moment_of_their_turn_gives_it_on() -> None:
    desk = Desk()
    first, second, third = await desk.come("a", "b", "c")
    desk.go.set()
    await first
    await eventually(lambda: second.done() or desk.line._lines.keys() == {"c"})
    second.cancel()
    await asyncio.gather(second, third, return_exceptions=True)
    assert third.done()
    assert not third.cancelled()


def test_what_a_loop_left_behind_when_it_ended_holds_nobody_up_in_the_next() -> None:
    desk = Desk()
    asyncio.run(desk.come("inside", "a", "b"))
    desk.go, desk.inside = asyncio.Event(), 0
    desk.go.set()
    asyncio.run(asyncio.wait_for(desk.visit("later"), PATIENCE))
    assert desk.served[-1] == "later"
